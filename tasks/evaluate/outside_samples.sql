-- name: kept
-- Which samples of a policy have a verdict, and which? Of one that was kept twice the first counts; one that the sandbox
-- failed on, which older versions kept, is judged again.
SELECT DISTINCT ON (problem_id, suite_hash, prompt_id, sample, seed) problem_id, sample, seed, reward FROM eval_samples
WHERE policy_id = $policy AND sampling = $sampling AND reward IS NOT NULL
  AND suite_hash IN (SELECT unnest($suites::VARCHAR[])) AND prompt_id IN (SELECT unnest($prompts::VARCHAR[]))
ORDER BY arrival;
