-- How likely does a policy solve a problem within k attempts (mean of the exact unbiased estimates over problems)?
CREATE OR REPLACE VIEW pass_at_k AS
WITH counts AS (
    SELECT policy_id, step, problem_set, sampling, problem_id, count(reward) AS n, count(*) FILTER (reward = 0) AS c
    FROM (
        SELECT DISTINCT ON (policy_id, problem_set, sampling, problem_id, suite_hash, sample, seed) *
        FROM eval_samples
        ORDER BY arrival
    )
    GROUP BY policy_id, step, problem_set, sampling, problem_id
),
attempts AS (SELECT unnest([1, 2, 5, 10, 20, 50, 100]) AS k)
SELECT policy_id, step, problem_set, sampling, k, avg(pass_at(n, c, k)) AS pass_at_k,
       stddev_samp(pass_at(n, c, k)) / sqrt(count(pass_at(n, c, k))) AS standard_error,
       count(pass_at(n, c, k)) AS problems, min(n) AS samples
FROM counts, attempts
GROUP BY policy_id, step, problem_set, sampling, k
HAVING count(pass_at(n, c, k)) > 0;

-- How did pass@k change over the optimizer steps of each run?
CREATE OR REPLACE VIEW learning_curve AS
WITH evaluated AS (SELECT DISTINCT run_id, policy_id, step, problem_set, sampling FROM eval_samples)
SELECT evaluated.run_id, evaluated.step, policy_id, problem_set, sampling,
       max(scores.pass_at_k) FILTER (k = 1) AS pass_at_1, max(scores.pass_at_k) FILTER (k = 5) AS pass_at_5,
       max(scores.pass_at_k) FILTER (k = 10) AS pass_at_10, max(scores.problems) AS problems,
       min(scores.samples) AS samples
FROM evaluated
JOIN pass_at_k AS scores USING (policy_id, problem_set, sampling)
WHERE evaluated.step IS NOT DISTINCT FROM scores.step
GROUP BY ALL
ORDER BY run_id, evaluated.step;
