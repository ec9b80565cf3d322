"""Tests, in the same tree as the packages.

    make test        everything but `slow`, in one process more than there are cores
    make test-quick  what starts no process
    make test-slow   the long tests; .ci/nightly runs them on a schedule, and the others with many examples

budget    limits the CPU time of each test and file, prints the dearest
progress  order of the files, progress, failures at once, skips by reason
examples  few or many examples and seeds
refusals  `refused(code, *values)`: an error by its code, never by its wording

`finished` (tasks/conftest.py) is one finished run that all tests copy; `server` (flows/conftest.py) is one Prefect
server for the session. Trainers are forked from one process that has imported everything (fork_server.py).

Scenarios, and the file that holds each:

kills of writers, leaders, compactors        warehouse/test_crashes.py
kills of the sandbox and its children        sandbox/test_kills.py
kills of trainers, workers, publishers       tasks/train/trainer/test_runs.py, tasks/train/test_supervisor.py,
                                             tasks/train/trainer/test_replay_kills.py,
                                             tasks/train/shared/test_published_weights.py
kills of flows, the same key twice           flows/server/test_deployments.py; flows/test_recovery.py (slow)
two runs killed, interleaved and resumed     tasks/run/test_schedules.py
stages broken off                            tasks/run/test_stage.py, tasks/q0/test_stage.py,
                                             tasks/pivotal/test_stage.py, tasks/evaluate/test_model_evaluation.py
PostgreSQL, S3                               warehouse/test_location.py, tasks/run/test_storage.py
a real browser                               flows/test_explorer_browser.py, tasks/report/test_stage.py
ZeRO 1 to 3, two and three processes         tasks/train/trainer/test_runs.py, tasks/train/trainer/test_ppo_runs.py
hostile programs on every backend            sandbox/test_attacks.py
a newcomer's first day                       flows/test_first_day.py
"""
