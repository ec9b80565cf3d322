-- name: stored
-- Which of these trajectories have reference log-probabilities under this fingerprint?
SELECT DISTINCT trajectory_id FROM reference_logprobs
WHERE fingerprint = ? AND trajectory_id IN (SELECT unnest(?::VARCHAR[]));

-- name: correct
-- What has pi_0 given the correct ones of these trajectories, by problem? The first to arrive, as in training.
SELECT t.problem_id, arg_min(l.logprobs, l.arrival) AS logprobs
FROM trajectories t JOIN reference_logprobs l USING (trajectory_id)
WHERE l.fingerprint = ? AND t.reward = 0 AND t.trajectory_id IN (SELECT unnest(?::VARCHAR[]))
GROUP BY t.problem_id, t.trajectory_id ORDER BY t.problem_id, t.trajectory_id;

-- name: responses
-- What are the tokens of the responses to score?
SELECT trajectory_id, problem_id, any_value(token_ids) AS token_ids FROM trajectories
WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY trajectory_id, problem_id ORDER BY trajectory_id;
