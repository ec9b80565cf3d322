"""The first stage: reads and splits problems, judges their own solutions, makes or fetches pi_0.

stage     the stage
pretrain  trains the small reference policy of the built-in task

Readers of problem files belong in `problems`. Start reading at `stage`.
"""
