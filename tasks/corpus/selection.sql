-- What became of every response that a run's offline corpus could take, for the prompts of some problems?
-- Of the current prompts, judged by the current suites, not this run's own online responses. `status` says why one is
-- left out before near duplicates and the cap are looked at; `text` is there for the candidates alone.
WITH responses AS (
    SELECT
        t.trajectory_id, t.problem_id, t.normal_hash, t.reward, t.verdict, t.text, len(t.token_ids) AS tokens,
        CASE
            WHEN t.source = 'reference' AND t.policy_start <> $policy_id THEN 'other_model'
            WHEN t.source <> 'online' THEN t.source
            WHEN json_extract_string(r.config_json, '$.train.algorithm') = 'ppo' THEN 'prior_ppo'
            ELSE 'prior_spo'
        END AS source
    FROM trajectories t
    LEFT JOIN runs r ON r.run_id = t.run_id AND t.source = 'online'
    WHERE list_contains($prompt_ids, t.prompt_id)
      AND list_contains($suite_hashes, t.suite_hash)
      AND NOT (t.source IN ('online', 'pivotal_rollout') AND t.run_id = $run_id)
      AND (t.verdict IS DISTINCT FROM $too_long OR t.max_response_tokens = $limit)
      -- a pin leaves out what others found later; Q0's samples and known programs do not depend on when they were stored
      AND ($pin IS NULL OR t.snapshot_id <= $pin OR t.source IN ('reference', 'human') OR t.run_id = $run_id)
    QUALIFY row_number() OVER (PARTITION BY t.trajectory_id ORDER BY t.reward DESC NULLS LAST, t.snapshot_id) = 1
),
filtered AS (
    SELECT *,
        list_position(['human', 'prior_spo', 'prior_ppo', 'other_model', 'reference', 'pivotal_rollout'], source) AS rank,
        CASE
            WHEN verdict = $too_long OR tokens > $max_tokens THEN 'too long'
            WHEN reward IS NULL THEN 'no verdict'
            WHEN reward < 0 AND $correct_only THEN 'not correct'
        END AS filter
    FROM responses
    WHERE list_contains($sources, source)
)
SELECT
    trajectory_id, problem_id, source, reward,
    CASE
        WHEN filter IS NOT NULL THEN filter
        WHEN row_number() OVER (PARTITION BY problem_id, normal_hash, reward, filter ORDER BY rank, trajectory_id) > 1
            THEN 'duplicate'
        ELSE 'candidate'
    END AS status,
    CASE WHEN status = 'candidate' THEN text END AS text
FROM filtered
ORDER BY problem_id, rank, trajectory_id
