-- Which copy of a response counts for a run (the least, then the first that arrived): one that the suites of its problems
-- (their batch) took up, then one that has a reward, then one of its own runs?
CREATE OR REPLACE MACRO standing_of_copy(problem, suite, run, reward_of_copy, problems_batch, own_runs) AS row(
    NOT coalesce((problem, suite) IN (
        SELECT (problem_id, suite_hash) FROM problems WHERE batch_id = problems_batch
    ), false),
    reward_of_copy IS NULL,
    NOT list_contains(own_runs, run)
);

-- Which correct responses can serve as offline data: one per different program, at most 32 per problem and source?
CREATE OR REPLACE VIEW correct_offline AS
WITH ranked AS (
    SELECT trajectory_id, problem_id, prompt_id, source, policy_start AS policy, temperature, normal_hash, token_ids,
           run_id, created_at, snapshot_id, arrival,
           row_number() OVER (PARTITION BY problem_id, source, normal_hash ORDER BY arrival) AS copy
    FROM trajectories
    WHERE reward = 0 AND source <> 'pivotal_rollout'
)
SELECT * EXCLUDE (copy),
       row_number() OVER (PARTITION BY problem_id, source ORDER BY arrival) AS place
FROM ranked
WHERE copy = 1
QUALIFY place <= 32;

-- Which scored responses can be trained on (each once, in however many batches it lies), and how often was each trained on
-- so far?
CREATE OR REPLACE VIEW replay_pool AS
WITH uses AS (
    SELECT trajectory_id, count(*) AS uses
    FROM (SELECT unnest(trajectory_ids) AS trajectory_id FROM train_batches)
    GROUP BY trajectory_id
)
SELECT trajectory_id, problem_id, source, policy_start AS policy, step, reward, len(token_ids) AS response_tokens,
       coalesce(uses.uses, 0) AS uses, run_id, created_at, snapshot_id, arrival
FROM trajectories ANTI JOIN repeated_trajectories USING (arrival)
LEFT JOIN uses USING (trajectory_id)
WHERE reward IS NOT NULL;

-- From which sources did each optimizer step of each run draw its batch?
CREATE OR REPLACE VIEW source_mix AS
SELECT run_id, step, source, count(*) AS trajectories,
       count(*) / sum(count(*)) OVER (PARTITION BY run_id, step) AS share
FROM (SELECT run_id, step, unnest(sources) AS source FROM train_batches)
GROUP BY run_id, step, source;

-- How many optimizer steps old were the weights behind the online responses of each optimizer step?
CREATE OR REPLACE VIEW staleness AS
WITH used AS (
    SELECT run_id, step, unnest(trajectory_ids) AS trajectory_id, unnest(sources) AS source FROM train_batches
),
made AS (
    SELECT DISTINCT run_id, trajectory_id, step AS sampled_step FROM trajectories
    WHERE source = 'online' AND step IS NOT NULL
)
SELECT run_id, step, count(*) AS trajectories, avg(step - sampled_step) AS mean_steps,
       max(step - sampled_step) AS most_steps
FROM used
JOIN made USING (run_id, trajectory_id)
WHERE source = 'online'
GROUP BY run_id, step;

-- When was each trajectory trained on, for which time in its run, from which source, and how many optimizer steps after
-- its first use and after the weights that sampled it (null for what another run or no run sampled)?
CREATE OR REPLACE VIEW uses AS
WITH used AS (
    SELECT run_id, step, unnest(trajectory_ids) AS trajectory_id, unnest(sources) AS source,
           generate_subscripts(sources, 1) AS place
    FROM train_batches
),
made AS (
    SELECT DISTINCT run_id, trajectory_id, step AS sampled_step FROM trajectories WHERE source = 'online'
)
SELECT run_id, step, trajectory_id, used.source,
       row_number() OVER (PARTITION BY run_id, trajectory_id ORDER BY step, place) AS use,
       step - min(step) OVER (PARTITION BY run_id, trajectory_id) AS steps_since_first,
       step - made.sampled_step AS age
FROM used
LEFT JOIN made USING (run_id, trajectory_id);
