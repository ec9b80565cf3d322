"""Checks before a run: what it would do, whether it can work, whether it can learn.

plan       how each stage of a run stands, and how much work lies ahead
preflight  everything that is wrong with a run, before it is submitted
probe      a few samples: chance of success, speed, memory

Nothing here changes the warehouse, and no stage imports it. Start reading at `preflight`.
"""
