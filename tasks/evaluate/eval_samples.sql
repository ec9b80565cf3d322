-- name: counts
-- How many scored samples of a policy are there for each problem, and how many are correct? The first $most of a problem
-- count (all, where it is NULL), whoever drew more. Samples that the sandbox failed on do not count, and of a sample that
-- two evaluations kept, which were at work at once, the first scored one does.
WITH scored AS (
    SELECT DISTINCT ON (problem_id, suite_hash, prompt_id, sample, seed) problem_id, sample, arrival, reward
    FROM eval_samples
    WHERE policy_id = $policy AND sampling = $sampling AND reward IS NOT NULL
      AND suite_hash IN (SELECT unnest($suites::VARCHAR[])) AND prompt_id IN (SELECT unnest($prompts::VARCHAR[]))
    ORDER BY arrival
), counted AS (
    SELECT problem_id, reward FROM scored
    QUALIFY $most IS NULL OR row_number() OVER (PARTITION BY problem_id ORDER BY sample, arrival) <= $most
)
SELECT problem_id, count(*) AS n, count(*) FILTER (reward = 0) AS k FROM counted GROUP BY problem_id;

-- name: drawn
-- How many samples of a policy were drawn for each problem, those included that the sandbox failed on?
SELECT problem_id, max(sample) + 1 AS n FROM eval_samples
WHERE policy_id = $policy AND sampling = $sampling
  AND suite_hash IN (SELECT unnest($suites::VARCHAR[])) AND prompt_id IN (SELECT unnest($prompts::VARCHAR[]))
GROUP BY problem_id;
