"""The process that updates the policy.

loop        one step after the other
session     what a trainer process holds, and how it is restored
batch_mix, replay_buffer, earlier, pairs, examples
            from the warehouse to a batch
spo_step, ppo_step, algorithm
            from a batch to an update
checkpoint, publisher, recorder, guards
            what is kept, published, recorded, and when it stops

DeepSpeed is imported in `deepspeed_engine` alone. Start reading at `loop`.
"""
