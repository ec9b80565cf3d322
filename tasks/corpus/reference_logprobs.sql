-- name: stored
-- Which of these trajectories have reference log-probabilities under this fingerprint?
SELECT DISTINCT trajectory_id FROM reference_logprobs
WHERE fingerprint = ? AND trajectory_id IN (SELECT unnest(?::VARCHAR[]));

-- name: responses
-- What are the tokens of the responses to score?
SELECT trajectory_id, problem_id, any_value(token_ids) AS token_ids FROM trajectories
WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY trajectory_id, problem_id ORDER BY trajectory_id;
