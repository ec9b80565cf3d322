"""Reads rollouts that other programs wrote into the warehouse (`spo import`).

rollouts  finds problems and prompts for the rows, judges them, stores them
formats   one module for each program whose files are read

Copies of warehouses belong in `warehouse/exchange`. Start reading at `rollouts.import_rollouts`.
"""
