-- name: trajectories
-- What did a run draw for training, or train on until a step, and how often?
SELECT trajectory_id, problem_id, prompt_id, source, engine, policy_start, step, temperature, top_p, seed, token_ids,
       sampled_logprobs, logprob_kind, text, finish_reason, reward, verdict, tests_passed, tests_total,
       coalesce(times, 0) AS times_trained
FROM (SELECT DISTINCT ON (trajectory_id) * FROM trajectories ORDER BY arrival DESC)
LEFT JOIN (
    SELECT trajectory_id, count(*) AS times
    FROM (SELECT unnest(trajectory_ids) AS trajectory_id FROM train_batches WHERE run_id = $trainer AND step <= $step)
    GROUP BY trajectory_id
) USING (trajectory_id)
WHERE run_id = $run OR times > 0
ORDER BY trajectory_id;

-- name: prompts
-- Which prompts of training problems did a run have, under which licences?
SELECT prompt_id, problem_id, problem_set, source, licence, template_id, text, token_ids
FROM (SELECT prompt_id, problem_id, template_id, text, token_ids FROM prompts WHERE batch_id = $batch)
JOIN (
    SELECT problem_id, problem_set, source, licence FROM problems WHERE batch_id = $problems AND split = 'train'
) USING (problem_id)
ORDER BY problem_id;

-- name: count
-- How many rows are these?
SELECT count(*) FROM ({rows});
