"""The stages of the pipeline and what they share.

prepare, q0, corpus, pivotal, train, evaluate, report
              one package for each stage, in the order in which they run
run, sampling, scoring
              what a stage is; prompts to judged rows; log-probabilities of given tokens
problems, programs, engines, checkpoints, objectives, estimators, config
              what all of them need
checks, extras, explorer
              before a run, beside a run, and the pages: no stage imports them

Prefect, DuckDB and the command line do not belong here. Start reading at `stages`, then `run/stage`.
"""
