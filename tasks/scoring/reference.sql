-- name: stored
-- What are the reference log-probabilities of these trajectories under one fingerprint? Of two runs that scored one beside
-- each other, those that arrived first: in bfloat16 they differ by what else was in the batch.
SELECT trajectory_id, arg_min(logprobs, arrival) AS logprobs FROM reference_logprobs
WHERE fingerprint = ? AND trajectory_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY trajectory_id;
