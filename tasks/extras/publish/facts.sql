-- name: problems
-- How many problems of each set, source and licence were trained and evaluated on? Of a problem's own address its host counts.
SELECT split, problem_set,
       coalesce(nullif(regexp_extract(source, '^https?://([^/]+)', 1), ''), split_part(source, ',', 1)) AS source,
       coalesce(nullif(licence, ''), 'not stated') AS licence,
       count(*) AS problems
FROM problems WHERE batch_id = ? AND unjudgeable_reason IS NULL
GROUP BY ALL ORDER BY split DESC, problem_set, source, licence;

-- name: trained_on
-- What was trained on until a step: how many trajectories of each source and writer, how many of them correct, and how
-- many with the rewards that their source claims?
-- Of a response that other runs drew, too, the copy counts that was judged by this run's suite, and of these its own.
WITH used AS (
    SELECT DISTINCT unnest(trajectory_ids) AS trajectory_id FROM train_batches WHERE run_id = $trainer AND step <= $step
),
counted AS (
    SELECT source, engine, reward, verdict FROM trajectories JOIN used USING (trajectory_id)
    QUALIFY row_number() OVER (
        PARTITION BY trajectory_id
        ORDER BY standing_of_copy(problem_id, suite_hash, run_id, reward, $problems, [$run, $trainer]), arrival
    ) = 1
)
SELECT source, CASE WHEN source IN ('online', 'reference', 'pivotal_rollout') THEN 'this project' ELSE engine END AS writer,
       count(*) AS trajectories, count(*) FILTER (reward = 0 AND verdict IS DISTINCT FROM 'claimed') AS correct,
       count(*) FILTER (verdict = 'claimed') AS claimed
FROM counted
GROUP BY ALL ORDER BY trajectories DESC, source, writer;
