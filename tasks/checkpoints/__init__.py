"""Models on disk: folders of weights, adapters, GGUF files, and what identifies them.

checkpoint     reads a folder; `policy_id` names its weights
model_sources  from a recipe to the folder of pi_0: found, fetched, converted, merged or tempered
adapter, adapted_weights, whole_model
               adapters and their bases
gguf_conversion, tempered, packaged_models
               ways to make a folder
inspection     what a model is, read without its weights

Sampling belongs in `engines`, training in `train`. Start reading at `checkpoint`.
"""
