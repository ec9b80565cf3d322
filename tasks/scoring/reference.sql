-- name: stored
-- What are the reference log-probabilities of these trajectories under one fingerprint?
SELECT trajectory_id, any_value(logprobs) AS logprobs FROM reference_logprobs
WHERE fingerprint = ? AND trajectory_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY trajectory_id;
