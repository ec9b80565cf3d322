"""The losses: functions of log-probabilities, without models, files or settings of runs.

losses           cross-entropy and squared losses of SPO (equations 8 to 13)
spo              soft values, advantages, reverse Q
ppo, policy_gradient, regression, groups, fine_tuning
                 the other methods of docs
dispatch         from a recipe's objective to its function

Start reading at `spo`, then `dispatch`.
"""
