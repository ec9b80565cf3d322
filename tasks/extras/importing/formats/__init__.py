"""Rollouts that other programs wrote, read as they wrote them (docs/guides/import.md).

response          what a row says, and fields of rows
verifiers_traces  verifiers and prime-rl: traces.jsonl, and results.jsonl of versions before 0.2
trl_completions   TRL: completions/completions_*.parquet
verl_rollouts     verl: STEP.jsonl of trainer.rollout_data_dir
oapl_rows         OAPL: the Parquet of its offline data sets
inspect_logs      Inspect: .eval and .json logs
plain_rows        any rows whose columns are named, also of the Hugging Face hub
matching          which problem a row answers
tokens            a response in the policy's tokens, exactly
"""
