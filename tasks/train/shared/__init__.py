"""Code that trainer, rollout workers and evaluator share.

job                what a training run is asked to do
published_weights  weights on their way from trainer to workers
soft_values        y_0 of each problem from pi_0's counts
fork_server, child, process, stop, time_limits
                   starting and stopping processes
errors             what ends training

Start reading at `job`.
"""
