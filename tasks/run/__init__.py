"""Runs and stages: keys, locks, manifests, provenance.

stage       a stage: key, lock, skipped when its key has completed
runs        a run and its stored configuration
manifests   what each stage hands to the next
provenance  what a run's batches were drawn from, fixed when training begins
prompt_set  the prompts of a run and their problems
sampling    judged samples of a policy, in shards that can be repeated

No stage's own work belongs here. Start reading at `stage`.
"""
