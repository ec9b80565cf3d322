-- name: rewards
-- How was each sample of a file judged?
SELECT problem_id, sample, reward FROM eval_samples
WHERE policy_id = ? AND sampling = ? AND list_contains(?, suite_hash)
QUALIFY row_number() OVER (PARTITION BY problem_id, suite_hash, sample ORDER BY arrival DESC) = 1;

-- name: drawn
-- How many answers of a model are there for each problem: the number of the next one?
SELECT problem_id, max(sample) + 1 AS n FROM eval_samples
WHERE policy_id = ? AND sampling = ? AND list_contains(?, suite_hash) GROUP BY problem_id;
