"""The process that samples from the newest policy and stores judged responses.

worker        its loop: weights, prompts, samples, one batch
backpressure  waits while it is too far ahead of the trainer
curriculum    which prompts come next

It shares nothing with the trainer but the warehouse and published weights. Start reading at `worker`.
"""
