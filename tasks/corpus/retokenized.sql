-- Which correct responses to these problems, judged by the same suites, followed prompts in other tokens?
-- One per program; those that a person wrote are taken from the problem itself.
SELECT trajectory_id, problem_id, text, source
FROM (
    SELECT t.trajectory_id, t.problem_id, t.normal_hash, t.text, t.snapshot_id,
        CASE
            WHEN t.source = 'reference' THEN 'other_model'
            WHEN t.source <> 'online' THEN t.source
            WHEN json_extract_string(r.config_json, '$.train.algorithm') = 'ppo' THEN 'prior_ppo'
            ELSE 'prior_spo'
        END AS source
    FROM trajectories t
    LEFT JOIN runs r ON r.run_id = t.run_id AND t.source = 'online'
    WHERE NOT list_contains($prompt_ids, t.prompt_id)
      AND list_contains($suite_hashes, t.suite_hash)
      AND t.reward = 0
      AND t.source NOT IN ('human', 'pivotal_rollout')
      AND t.run_id <> $run_id
)
WHERE list_contains($sources, source) AND ($pin IS NULL OR snapshot_id <= $pin)
QUALIFY row_number() OVER (PARTITION BY problem_id, normal_hash ORDER BY trajectory_id) = 1
ORDER BY problem_id, trajectory_id
