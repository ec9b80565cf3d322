"""Exact pass@k of policies: a run's own, any model, or samples that others drew.

stage             the last measurements of a run and its curve
evaluator         the process that evaluates beside training
eval_samples      samples as rows, and pass@k from counts
model_evaluation  `spo eval` of any checkpoint or endpoint
outside_samples, sample_files
                  samples from a file
transfer          the same policy on other sets of problems

Estimators belong in `estimators`. Start reading at `stage`.
"""
