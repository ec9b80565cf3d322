"""Q0 estimation (section 3.1.3): how often pi_0 solves each prompt.

stage       samples prompts in shards and stores counts (n, k)
allocation  how many samples each prompt gets, adaptively

Soft values are computed from the counts in `train/shared/soft_values`. Start reading at `stage`.
"""
