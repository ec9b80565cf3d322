-- name: problem
-- What does the newest version of this problem say, and how is it judged?
SELECT * FROM problems WHERE problem_id = $problem ORDER BY arrival DESC LIMIT 1;

-- name: tests
-- Which tests does the suite have?
SELECT position, any_value(input) AS input, any_value(expected) AS expected, any_value(hidden) AS hidden FROM tests
WHERE problem_id = $problem AND suite_hash = $suite GROUP BY position ORDER BY position;

-- name: policies
-- How often did each policy solve the problem, with a 95% Jeffreys interval?
SELECT policy, source, min(step) AS step, count(reward) AS n, count(*) FILTER (reward = 0) AS k,
       count(*) FILTER (reward IS NULL) AS unscored, count(DISTINCT program) AS programs,
       arg_min(run_id, arrival) AS run_id
FROM resident.answers_to([$problem], '')
GROUP BY policy, source ORDER BY source, step, policy;

-- name: pi_0
-- How often did pi_0 solve the problem, over all runs, as it was last asked and judged?
WITH newest AS (
    SELECT reference, sampling, template_id, suite_hash, prompt_id FROM reference_counts
    WHERE problem_id = $problem ORDER BY arrival DESC LIMIT 1
)
SELECT CAST(sum(n) AS BIGINT) AS n, CAST(sum(k) AS BIGINT) AS k
FROM reference_counts AS counts JOIN newest USING (reference, sampling, template_id, suite_hash)
WHERE problem_id = $problem AND (counts.prompt_id IS NULL OR counts.prompt_id = newest.prompt_id);

-- name: programs
-- Which different programs were written for the problem, by whom first, how often, and with which verdict?
SELECT program, count(DISTINCT (origin, response)) AS times, list_sort(list(DISTINCT author)) AS authors,
       bool_or(reward = 0) AS correct,
       arg_min(author, (snapshot_id, arrival)) AS first_author, arg_min(run_id, (snapshot_id, arrival)) AS first_run,
       arg_min_null(step, (snapshot_id, arrival)) AS first_step, arg_min(source, (snapshot_id, arrival)) AS first_source,
       min(snapshot_id) AS first_snapshot, mode(verdict) AS verdict,
       arg_min(created_at, arrival) FILTER (origin = 'trajectories') AS first_at,
       arg_min(created_at, arrival) FILTER (origin = 'eval_samples') AS first_eval_at
FROM resident.responses WHERE problem_id = $problem AND program IS NOT NULL GROUP BY program;

-- name: verdicts
-- What did the sandbox say of these programs with the suite that counts, else with another, the newest of each?
SELECT program_hash, suite_hash, verdict, tests_passed, tests_total, cpu_s, memory_bytes, detail, outcomes, sandbox_version
FROM verdicts
WHERE suite_hash IN (SELECT unnest($suites)) AND program_hash IN (SELECT unnest($programs))
QUALIFY row_number() OVER (PARTITION BY program_hash ORDER BY suite_hash = $counting DESC, arrival DESC) = 1;

-- name: through_time
-- How did the answers to the problem change along training: samples, successes and new programs at each step?
WITH answers AS (
    SELECT coalesce(step, 0) AS step, reward, program, snapshot_id, arrival, source
    FROM resident.answers_to([$problem], $run)
    WHERE source IN ('online', 'evaluation') AND author <> 'other model'
),
first AS (
    SELECT program, arg_min(coalesce(step, 0), (snapshot_id, arrival)) AS step,
           arg_min(source, (snapshot_id, arrival)) AS source, arg_min(run_id, (snapshot_id, arrival)) AS run_id,
           arg_min(author, (snapshot_id, arrival)) AS author
    FROM resident.responses WHERE problem_id = $problem AND program IS NOT NULL GROUP BY program
)
SELECT step, count(*) AS samples, count(reward) AS n, count(*) FILTER (reward = 0) AS k,
       count(DISTINCT program) AS programs,
       (SELECT count(*) FROM first WHERE first.step = answers.step AND first.source IN ('online', 'evaluation')
           AND first.author <> 'other model' AND ($run = '' OR first.run_id = $run)) AS new
FROM answers GROUP BY step ORDER BY step;

-- name: at_step
-- Which programs were written for the problem at this step, and how often?
SELECT program, count(*) AS times, bool_or(reward = 0) AS correct, mode(verdict) AS verdict,
       arg_min(created_at, arrival) FILTER (origin = 'trajectories') AS first_at,
       arg_min(created_at, arrival) FILTER (origin = 'eval_samples') AS first_eval_at
FROM resident.answers_to([$problem], $run)
WHERE coalesce(step, 0) = $step AND source IN ('online', 'evaluation') AND author <> 'other model'
  AND program IS NOT NULL
GROUP BY program ORDER BY times DESC, program LIMIT 12;

-- name: runs
-- Which runs sampled the problem along training?
SELECT run_id, count(DISTINCT (origin, response)) AS samples FROM resident.responses
WHERE problem_id = $problem AND source IN ('online', 'evaluation') AND author <> 'other model' GROUP BY run_id ORDER BY run_id;
