"""SPO and PPO training: the stage and the processes that it starts.

stage           the stage
supervisor      starts trainer, workers and evaluator, and starts them again
hosts           the same on several machines
trainer         the process that updates the policy
rollout_worker  the process that samples from it
shared          what both need

Losses belong in `objectives`, log-probabilities in `scoring`. Start reading at `stage`, then `trainer/loop`.
"""
