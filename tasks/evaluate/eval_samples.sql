-- name: counts
-- How many scored samples of a policy are there for each problem, and how many are correct? Samples that the sandbox
-- failed on do not count, and of a sample that two evaluations kept, which were at work at once, the first scored one does.
SELECT problem_id, count(reward) AS n, count(*) FILTER (reward = 0) AS k
FROM (
    SELECT DISTINCT ON (problem_id, suite_hash, prompt_id, sample, seed) problem_id, reward FROM eval_samples
    WHERE policy_id = ? AND sampling = ?
      AND suite_hash IN (SELECT unnest(?::VARCHAR[])) AND prompt_id IN (SELECT unnest(?::VARCHAR[]))
    ORDER BY reward IS NULL, arrival
)
GROUP BY problem_id;

-- name: drawn
-- How many samples of a policy were drawn for each problem, those included that the sandbox failed on?
SELECT problem_id, max(sample) + 1 AS n FROM eval_samples
WHERE policy_id = ? AND sampling = ?
  AND suite_hash IN (SELECT unnest(?::VARCHAR[])) AND prompt_id IN (SELECT unnest(?::VARCHAR[]))
GROUP BY problem_id;
