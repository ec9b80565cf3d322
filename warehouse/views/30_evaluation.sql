-- How often did each policy solve each problem as each prompt showed it and each suite judged it (each sample once)?
CREATE OR REPLACE VIEW evaluation_counts AS
SELECT policy_id, step, problem_set, sampling, problem_id, prompt_id, suite_hash, count(reward) AS n,
       count(*) FILTER (reward = 0) AS c
FROM (
    SELECT DISTINCT ON (policy_id, problem_set, sampling, problem_id, prompt_id, suite_hash, sample, seed)
           policy_id, step, problem_set, sampling, problem_id, prompt_id, suite_hash, reward
    FROM eval_samples
    ORDER BY reward IS NULL, arrival
)
GROUP BY ALL;

-- How likely does a policy solve a problem within k attempts (mean of the exact unbiased estimates over problems, each of
-- which counts once, with its mean over the prompts that showed it and the suites that judged it)?
CREATE OR REPLACE VIEW pass_at_k AS
WITH attempts AS (SELECT unnest([1, 2, 5, 10, 20, 50, 100]) AS k),
by_problem AS (
    SELECT policy_id, step, problem_set, sampling, problem_id, k, avg(pass_at(n, c, k)) AS estimate, min(n) AS n
    FROM evaluation_counts, attempts
    GROUP BY ALL
)
SELECT policy_id, step, problem_set, sampling, k, avg(estimate) AS pass_at_k,
       stddev_samp(estimate) / sqrt(count(estimate)) AS standard_error, count(estimate) AS problems, min(n) AS samples
FROM by_problem
GROUP BY policy_id, step, problem_set, sampling, k
HAVING count(estimate) > 0;

-- How did pass@k change over the optimizer steps of each run, on the problems, prompts and suites that it drew samples with?
CREATE OR REPLACE VIEW learning_curve AS
WITH own AS MATERIALIZED (
    SELECT DISTINCT run_id, policy_id, step, problem_set, sampling, problem_id, prompt_id, suite_hash FROM eval_samples
),
evaluated AS (SELECT DISTINCT run_id, policy_id, step, problem_set, sampling FROM own),
asked AS (SELECT DISTINCT run_id, problem_set, sampling, problem_id, prompt_id, suite_hash FROM own),
wanted AS MATERIALIZED (SELECT * FROM evaluated JOIN asked USING (run_id, problem_set, sampling)),
by_problem AS (
    SELECT run_id, wanted.step, policy_id, problem_set, sampling, problem_id,
           avg(pass_at(n, c, 1)) AS first, avg(pass_at(n, c, 5)) AS fifth, avg(pass_at(n, c, 10)) AS tenth, min(n) AS n
    FROM wanted JOIN evaluation_counts AS counts USING (policy_id, problem_set, sampling, problem_id)
    WHERE wanted.step IS NOT DISTINCT FROM counts.step
      AND wanted.prompt_id IS NOT DISTINCT FROM counts.prompt_id
      AND wanted.suite_hash IS NOT DISTINCT FROM counts.suite_hash
    GROUP BY ALL
)
SELECT run_id, step, policy_id, problem_set, sampling, avg(first) AS pass_at_1, avg(fifth) AS pass_at_5,
       avg(tenth) AS pass_at_10, count(first) AS problems, min(n) AS samples
FROM by_problem
GROUP BY ALL
HAVING count(first) > 0
ORDER BY run_id, step;
