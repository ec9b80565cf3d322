-- name: kept
-- Which samples of a policy are kept, and how was each judged? Of one that was kept twice the first counts.
SELECT DISTINCT ON (problem_id, suite_hash, prompt_id, sample, seed) problem_id, sample, seed, reward FROM eval_samples
WHERE policy_id = ? AND sampling = ?
  AND suite_hash IN (SELECT unnest(?::VARCHAR[])) AND prompt_id IN (SELECT unnest(?::VARCHAR[]))
ORDER BY arrival;
