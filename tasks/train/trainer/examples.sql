-- name: by_id
-- What is there to train on in these trajectories?
-- A response that several runs sampled or judged has a row of each: the one judged by this run's suite counts, and
-- among these the run's own.
SELECT * FROM trajectories WHERE trajectory_id IN (SELECT unnest($ids::VARCHAR[]))
QUALIFY row_number() OVER (
    PARTITION BY trajectory_id
    ORDER BY standing_of_copy(problem_id, suite_hash, run_id, reward, $problems_batch, [$run]), arrival
) = 1
ORDER BY trajectory_id;

-- name: prompt_tokens
-- What are the token ids of these prompts, and of all of a batch?
SELECT prompt_id, any_value(token_ids) AS token_ids FROM prompts
WHERE prompt_id IN (SELECT unnest(?::VARCHAR[])) OR batch_id = ? GROUP BY prompt_id;

-- name: values
-- Which prefixes of these trajectories have Monte-Carlo estimates under this reference?
SELECT trajectory_id, "position", sum(n) AS n, sum(k) AS k FROM token_values
WHERE reference = ? AND (?::VARCHAR IS NULL OR search_id = ?) AND "position" > 0
  AND trajectory_id IN (SELECT unnest(?::VARCHAR[]))
GROUP BY trajectory_id, "position" ORDER BY trajectory_id, "position";
