"""Prefect flows and the command `spo`: what a person starts.

pipeline      the flow `spo/full-pipeline` and one deployment for each stage
study, rejudge, audit, evaluation
              the other flows
cli           the command `spo`
server        the embedded Prefect server and worker

Computation does not belong here: a flow calls `tasks`. Prefect is imported in this package alone.
Start reading at `pipeline`.
"""
