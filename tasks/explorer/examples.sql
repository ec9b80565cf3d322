-- name: learning
-- How did pass@k change over the steps of each run?
SELECT run_id, step, pass_at_1, pass_at_10 FROM learning_curve ORDER BY run_id, step;

-- name: hardest
-- Which problems does pi_0 hardly ever solve?
SELECT problem_id, n, k, s, s_lower, s_upper FROM q0 ORDER BY s, problem_id LIMIT 20;

-- name: found
-- Which correct programs did training find that pi_0 never wrote?
SELECT problem_id, first_run, first_at, times, text FROM new_solutions ORDER BY times DESC LIMIT 20;

-- name: mix
-- From which sources did each optimizer step draw its batch?
SELECT source, step, share FROM source_mix ORDER BY source, step;

-- name: cost
-- What did the stages cost?
SELECT run_id, stage, seconds, rows FROM cost_by_stage ORDER BY seconds DESC;

-- name: studies
-- How did pass@k change in each arm of a study?
SELECT study, arm, seed, step, pass_at_1, pass_at_10 FROM study_runs JOIN learning_curve USING (run_id)
WHERE newest ORDER BY study, arm, seed, step;
