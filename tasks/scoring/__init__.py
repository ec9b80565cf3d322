"""Log-probabilities of given tokens under a policy and under pi_0.

logprobs     log pi of packed sequences
packing, prefix_tree, tree, tree_kernel, attention
             sequences side by side, shared beginnings computed once
policy       the model in training
reference    pi_0, and the store of its log-probabilities
lora, lora_layer, offloading
             adapters and memory

Sampling belongs in `engines`. Start reading at `logprobs`.
"""
