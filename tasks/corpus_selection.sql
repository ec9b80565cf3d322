-- Which trajectories does this run's offline corpus consist of?
-- Of the current prompts, judged by the current suites, correct (if asked for), not this run's own,
-- one per normalised program and problem, at most `cap` per problem, sources taking turns.
WITH candidates AS (
    SELECT
        t.trajectory_id, t.problem_id, t.normal_hash, t.reward,
        CASE
            WHEN t.source <> 'online' THEN t.source
            WHEN json_extract_string(r.config_json, '$.train.algorithm') = 'ppo' THEN 'prior_ppo'
            ELSE 'prior_spo'
        END AS source
    FROM trajectories t
    LEFT JOIN runs r ON r.run_id = t.run_id AND t.source = 'online'
    WHERE list_contains($prompt_ids, t.prompt_id)
      AND list_contains($suite_hashes, t.suite_hash)
      AND t.reward IS NOT NULL
      AND (t.reward = 0 OR NOT $correct_only)
      AND NOT (t.source IN ('online', 'pivotal_rollout') AND t.run_id = $run_id)
      -- a pin leaves out what others found later; Q0's samples and known programs do not depend on when they were stored
      AND ($pin IS NULL OR t.snapshot_id <= $pin OR t.source IN ('reference', 'human'))
),
distinct_programs AS (
    SELECT * FROM candidates
    WHERE list_contains($sources, source)
    QUALIFY row_number() OVER (
        PARTITION BY problem_id, normal_hash, reward
        ORDER BY list_position(['human', 'prior_spo', 'prior_ppo', 'other_model', 'reference'], source), trajectory_id
    ) = 1
),
turns AS (
    SELECT *, row_number() OVER (PARTITION BY problem_id, source ORDER BY trajectory_id) AS turn FROM distinct_programs
)
SELECT trajectory_id, problem_id, source
FROM turns
QUALIFY row_number() OVER (PARTITION BY problem_id ORDER BY turn, source, trajectory_id) <= $cap
ORDER BY problem_id, trajectory_id
