-- name: published
-- Which weights has the run published so far, the newest of each step?
SELECT DISTINCT ON (step) policy_id, step, path FROM policies
WHERE run_id = ? AND kind IN ('snapshot', 'final') AND step > 0 ORDER BY step, arrival DESC;

-- name: progress
-- How many trajectories was the run trained on, and how long did it train (waiting included), until each step?
SELECT step, sum(sequences) OVER (ORDER BY step) AS trajectories, sum(seconds) OVER (ORDER BY step) AS seconds
FROM (SELECT DISTINCT ON (step) step, len(trajectory_ids) AS sequences FROM train_batches WHERE run_id = $run)
LEFT JOIN (SELECT step, any_value(value) AS seconds FROM train_steps
           WHERE run_id = $run AND name = 'seconds' GROUP BY step) USING (step)
ORDER BY step;

-- name: diversity
-- How diverse are the samples of each evaluated policy? Means over problems, then over problem sets. Of each problem at
-- most $most samples count (all, where it is NULL), since more samples hold more programs and more duplicates; of a sample
-- that two evaluations kept, which were at work at once, the first does.
WITH samples AS (
    SELECT DISTINCT ON (policy_id, problem_id, suite_hash, prompt_id, sample, seed)
           policy_id, problem_set, problem_id, sample, reward, normal_hash, entropy, arrival
    FROM eval_samples
    WHERE policy_id IN (SELECT unnest($policies::VARCHAR[])) AND sampling = $sampling
      AND suite_hash IN (SELECT unnest($suites::VARCHAR[]))
      AND prompt_id IN (SELECT unnest($prompts::VARCHAR[]))
    ORDER BY reward IS NULL, arrival
), counted AS (
    SELECT * FROM samples
    QUALIFY $most IS NULL
         OR row_number() OVER (PARTITION BY policy_id, problem_id ORDER BY reward IS NULL, sample, arrival) <= $most
), by_problem AS (
    SELECT policy_id, problem_set, problem_id, count(DISTINCT normal_hash) FILTER (reward = 0) AS distinct_correct,
           1 - count(DISTINCT normal_hash) / count(*) AS duplicates, avg(entropy) AS entropy
    FROM counted GROUP BY ALL
), by_set AS (
    SELECT policy_id, problem_set, avg(distinct_correct) AS distinct_correct, avg(duplicates) AS duplicates,
           avg(entropy) AS entropy
    FROM by_problem GROUP BY ALL
)
SELECT policy_id, avg(distinct_correct) AS distinct_correct, avg(duplicates) AS duplicates, avg(entropy) AS entropy
FROM by_set GROUP BY policy_id;

-- name: training_figures
-- What were the trainer's figures, as means over equal stretches of training (single steps of a short run)?
SELECT name, max(step) AS step, avg(value) AS value
FROM (
    SELECT name, step, any_value(value) AS value FROM train_steps
    WHERE run_id = $run AND list_contains($names, name) GROUP BY name, step
)
GROUP BY name, (step - 1) // (SELECT greatest(1, ceil(max(step) / $points)) FROM train_steps WHERE run_id = $run)
ORDER BY name, step;

-- name: source_mix
-- Which sources did each stretch of training train on?
SELECT max(step) AS step, source, count(*) AS sequences
FROM (SELECT step, unnest(sources) AS source FROM train_batches WHERE run_id = $run)
GROUP BY source, (step - 1) // (SELECT greatest(1, ceil(max(step) / $points)) FROM train_batches WHERE run_id = $run)
ORDER BY step, source;

-- name: by_age
-- What were y_T, loss and log-ratio to the sampler by the age of the weights that sampled, over all uses?
WITH figures AS (
    SELECT step, CAST(split_part(name, '/', 2) AS BIGINT) AS age, split_part(name, '/', 3) AS name,
           any_value(value) AS value
    FROM train_steps WHERE run_id = ? AND starts_with(name, 'age/') GROUP BY ALL
)
SELECT age, figures.name, sum(figures.value * weights.value) / sum(weights.value) AS value
FROM figures
JOIN (SELECT step, age, value FROM figures WHERE name = 'sequences') AS weights USING (step, age)
WHERE figures.name <> 'sequences'
GROUP BY age, figures.name ORDER BY age, figures.name;

-- name: uses
-- How many online trajectories did the run use how often, and how old were they?
SELECT uses, count(*) AS trajectories, round(avg(age), 1) AS age
FROM (
    SELECT trajectory_id, count(*) AS uses, avg(age) AS age FROM uses
    WHERE run_id = ? AND source IN ('online', 'replay') GROUP BY trajectory_id
)
GROUP BY uses ORDER BY uses;

-- name: drawn
-- How many judged online responses did each problem get, and how many of them pass?
SELECT problem_id, count(DISTINCT trajectory_id) AS n, count(DISTINCT trajectory_id) FILTER (reward = 0) AS k
FROM trajectories WHERE run_id = ? AND source = 'online' AND reward IS NOT NULL GROUP BY problem_id ORDER BY problem_id;

-- name: believed
-- How many responses were drawn of problems that were believed hopeless, open or solved, by step of the weights?
SELECT step, kind, CAST(sum(responses) AS BIGINT) AS responses
FROM (
    SELECT CAST(json_extract(payload_json, '$.step') AS BIGINT) AS step,
           CAST(json_extract(item, '$[2]') AS BIGINT) AS responses,
           CASE WHEN CAST(json_extract(item, '$[1]') AS DOUBLE) < 0.05 THEN 'hopeless'
                WHEN CAST(json_extract(item, '$[1]') AS DOUBLE) > 0.95 THEN 'solved' ELSE 'open' END AS kind
    FROM (
        SELECT payload_json, unnest(CAST(json_extract(payload_json, '$.drawn') AS JSON[])) AS item
        FROM run_events WHERE run_id = ? AND kind = 'rollout'
    )
)
GROUP BY step, kind ORDER BY step, kind;

-- name: reward_by_temperature
-- How often do online responses pass, by their temperature?
SELECT floor(temperature * 10 + 1e-9) / 10 AS low, count(DISTINCT trajectory_id) AS n,
       count(DISTINCT trajectory_id) FILTER (reward = 0) AS k
FROM trajectories WHERE run_id = ? AND source = 'online' AND reward IS NOT NULL GROUP BY low ORDER BY low;

-- name: stage_cost
-- What did each stage of the run take and make: time, responses, sampled tokens, judged programs, time of judging?
WITH took AS (
    SELECT stage, (SELECT seconds FROM cost_by_stage c WHERE c.run_id = $run AND c.stage = s.stage) AS seconds,
           bool_and(status = 'skipped') AS reused, min(created_at) AS ended
    FROM stages s WHERE run_id = $run AND status IN ('completed', 'skipped') GROUP BY stage
), made AS (
    SELECT split_part(batch_id, '/', 1) AS origin, count(*) AS responses,
           sum(len(token_ids) - coalesce(prefix_tokens, 0)) FILTER (source <> 'human') AS tokens
    FROM trajectories WHERE run_id = $run GROUP BY ALL
    UNION ALL
    SELECT 'eval', count(*), sum(len(token_ids)) FROM eval_samples WHERE run_id = $run
), judged AS (
    SELECT split_part(batch_id, '/', 1) AS origin, count(*) AS programs, sum(cpu_s) AS judging
    FROM verdicts WHERE run_id = $run GROUP BY ALL
), cost AS (
    SELECT CASE origin WHEN 'rollout' THEN 'train' WHEN 'eval' THEN 'evaluate' WHEN 'import' THEN 'corpus'
                       WHEN 'solutions' THEN 'prepare' ELSE origin END AS stage,
           sum(responses) AS responses, sum(tokens) AS tokens, sum(programs) AS programs, sum(judging) AS judging
    FROM made FULL JOIN judged USING (origin) GROUP BY ALL
)
SELECT $run AS run, stage, seconds, reused, CAST(responses AS BIGINT) AS responses, CAST(tokens AS BIGINT) AS tokens,
       CAST(programs AS BIGINT) AS programs, judging
FROM took LEFT JOIN cost USING (stage) ORDER BY ended;

-- name: discovered
-- Correct programs that training found: how many different ones, and which of them pi_0 never wrote, in any run?
WITH found AS (
    SELECT problem_id, normal_hash, any_value(text) AS program, count(DISTINCT trajectory_id) AS times, min(step) AS step
    FROM trajectories WHERE run_id = ? AND source = 'online' AND reward = 0 GROUP BY problem_id, normal_hash
), written AS (
    SELECT problem_id, normal_hash, source = 'human' AS by_people, source IN ('reference', 'pivotal_rollout')
           OR coalesce(policy_start IN (SELECT policy_id FROM policies WHERE kind = 'reference'), false) AS by_pi_0
    FROM trajectories
    UNION ALL
    SELECT problem_id, normal_hash, false, true
    FROM eval_samples WHERE policy_id IN (SELECT policy_id FROM policies WHERE kind = 'reference')
), known AS (
    SELECT problem_id, normal_hash, bool_or(by_pi_0) AS by_pi_0, bool_or(by_people) AS by_people
    FROM written WHERE by_pi_0 OR by_people GROUP BY problem_id, normal_hash
)
SELECT found.*, NOT coalesce(by_pi_0, false) AS new, coalesce(by_people, false) AS human
FROM found LEFT JOIN known USING (problem_id, normal_hash)
ORDER BY new DESC, step, problem_id;
