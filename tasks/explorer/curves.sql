-- name: evaluations
-- What did the last evaluation of each of these runs leave: its learning curve with intervals?
SELECT run_id, arg_max(manifest_json, arrival) AS manifest FROM stages
WHERE list_contains($runs, run_id) AND stage = 'evaluate' AND status IN ('completed', 'skipped')
GROUP BY run_id;

-- name: samples
-- How often was each of its own evaluation problems solved by each policy that a run, still on its way, has evaluated so
-- far? (Those of other sets count apart when it ends; of a sample that two evaluations kept, the first does.)
WITH prepared AS (
    SELECT arg_max(json_extract_string(manifest_json, '$.problems_batch'), arrival) AS batch FROM stages
    WHERE run_id = $run AND stage = 'prepare' AND status IN ('completed', 'skipped')
),
own AS (SELECT problem_id FROM problems WHERE batch_id = (SELECT batch FROM prepared) AND split = 'evaluation'),
counted AS (
    SELECT DISTINCT ON (policy_id, problem_id, suite_hash, prompt_id, sample, seed)
           policy_id, step, problem_set, problem_id, reward
    FROM eval_samples
    WHERE run_id = $run  -- an evaluation by itself prepares nothing: all of its problems are its own
      AND ((SELECT batch FROM prepared) IS NULL OR problem_id IN (SELECT problem_id FROM own))
    ORDER BY reward IS NULL, arrival
)
SELECT policy_id, any_value(step) AS step, problem_set, problem_id, count(reward) AS n,
       count(*) FILTER (reward = 0) AS c
FROM counted
GROUP BY policy_id, problem_set, problem_id
ORDER BY step, problem_id;

-- name: figures
-- What were the trainer's figures, as means over equal stretches of training (single steps of a short run)?
WITH found AS MATERIALIZED (
    SELECT run_id, name, step, any_value(value) AS value FROM train_steps
    WHERE list_contains($runs, run_id) AND list_contains($names, name) GROUP BY run_id, name, step
)
SELECT run_id, name, max(step) AS step, avg(value) AS value FROM found
GROUP BY run_id, name, (step - 1) // (SELECT greatest(1, ceil(max(step) / $points)) FROM found)
ORDER BY run_id, name, step;
