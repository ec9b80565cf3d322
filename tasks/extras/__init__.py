"""Work beside a run. Nothing in the pipeline imports this package (a contract in pyproject.toml).

audit      finds tests that are too weak
importing  reads rollouts that other programs wrote
publish    writes a policy, an adapter or trajectories for others
rejudge    judges again what an older sandbox judged

Start reading at the package of the command: `spo audit`, `spo import`, `spo publish`, `spo rejudge`.
"""
