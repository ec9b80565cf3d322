-- name: trajectories
-- What did a run draw for training, or train on until a step, and how often?
-- A response may be another run's, too: the copy counts that was judged by this run's suite, and of these its own.
WITH used AS (
    SELECT trajectory_id, count(*) AS times
    FROM (SELECT unnest(trajectory_ids) AS trajectory_id FROM train_batches WHERE run_id = $trainer AND step <= $step)
    GROUP BY trajectory_id
)
SELECT trajectory_id, problem_id, prompt_id, source, engine, policy_start, step, temperature, top_p, seed, token_ids,
       sampled_logprobs, logprob_kind, text, finish_reason, reward, verdict, tests_passed, tests_total,
       coalesce(times, 0) AS times_trained
FROM trajectories LEFT JOIN used USING (trajectory_id)
WHERE times > 0 OR trajectory_id IN (SELECT trajectory_id FROM trajectories WHERE run_id = $run)
QUALIFY row_number() OVER (
    PARTITION BY trajectory_id
    ORDER BY standing_of_copy(problem_id, suite_hash, run_id, reward, $problems, [$run, $trainer]), arrival
) = 1
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
