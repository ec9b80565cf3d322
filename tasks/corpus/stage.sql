-- name: earlier
-- Which responses of other runs, and which that were imported, could join this run's corpus? Not the programs that the
-- problems come with: runs share them. Samples of another pi_0, whose prompts have other tokens, count as another model's.
SELECT count(*) AS n, CAST(bit_xor(hash(trajectory_id)) AS VARCHAR) AS content FROM trajectories
WHERE (list_contains($sources, source)
       OR source = 'human' AND $human AND NOT starts_with(batch_id, 'import/human/')
       OR source = 'reference' AND $other_models AND prompt_id NOT IN (SELECT unnest($prompt_ids::VARCHAR[])))
  AND run_id <> $run_id
  AND ($pin IS NULL OR snapshot_id <= $pin OR batch_id IN (SELECT batch_id FROM judged_again WHERE snapshot_id <= $pin))
  AND (prompt_id IN (SELECT unnest($prompt_ids::VARCHAR[])) OR suite_hash IN (SELECT unnest($suite_hashes::VARCHAR[])));

-- name: reference
-- Which samples of reference policies, not drawn for the corpus, could join this run's corpus?
SELECT count(*) AS n, CAST(bit_xor(hash(trajectory_id)) AS VARCHAR) AS content FROM trajectories
WHERE source = 'reference' AND NOT starts_with(batch_id, $drawn)
  AND prompt_id IN (SELECT unnest($prompt_ids::VARCHAR[]))
  AND suite_hash IN (SELECT unnest($suite_hashes::VARCHAR[]))
  AND ($until IS NULL OR snapshot_id <= $until
       OR batch_id IN (SELECT batch_id FROM judged_again WHERE snapshot_id <= $until));

-- name: drawn
-- How many samples of the reference policy were drawn for the corpus, per problem? Two runs at once may draw the same.
SELECT problem_id, count(DISTINCT trajectory_id) AS n FROM trajectories
WHERE starts_with(batch_id, ?)
  AND prompt_id IN (SELECT unnest(?::VARCHAR[])) AND suite_hash IN (SELECT unnest(?::VARCHAR[]))
  AND (?::BIGINT IS NULL OR snapshot_id <= ? OR batch_id IN (SELECT batch_id FROM judged_again WHERE snapshot_id <= ?))
GROUP BY problem_id;

-- name: known
-- Which of these responses could a corpus keep? One per program, right ones first.
SELECT trajectory_id, problem_id, reward, text FROM trajectories
WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[])) AND reward IS NOT NULL AND len(token_ids) <= ?
  AND (? OR reward = 0)
QUALIFY row_number() OVER (PARTITION BY problem_id, normal_hash, reward ORDER BY trajectory_id) = 1
ORDER BY problem_id, trajectory_id;

-- name: selection
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
    LEFT JOIN judged_again ON judged_again.batch_id = t.batch_id
    WHERE t.prompt_id IN (SELECT unnest($prompt_ids::VARCHAR[]))
      AND t.suite_hash IN (SELECT unnest($suite_hashes::VARCHAR[]))
      AND NOT (t.source IN ('online', 'pivotal_rollout') AND t.run_id = $run_id)
      AND (t.verdict IS DISTINCT FROM $too_long OR t.max_response_tokens = $limit)
      -- What a policy was cut off in says something at the same limit alone.
      AND (t.finish_reason IS DISTINCT FROM 'length' OR t.max_response_tokens = $limit
           OR t.source NOT IN ('reference', 'online', 'pivotal_rollout'))
      -- What was taken in before the chat template's end of an answer was known ends with the tokenizer's end.
      AND ($end::INTEGER IS NULL OR t.finish_reason = 'length' OR t.logprob_kind = 'raw' OR t.token_ids[-1] = $end
           OR t.source NOT IN ('human', 'other_model', 'prior_spo', 'prior_ppo'))
      -- A pin leaves out what others found later, but not Q0's samples, and not what this run takes in or asks for: it
      -- may have been stored by another run that takes in the same.
      AND ($pin IS NULL OR least(t.snapshot_id, judged_again.snapshot_id) <= $pin
           OR t.source = 'reference' AND least(t.snapshot_id, judged_again.snapshot_id) <= $until
           OR t.source = 'other_model' AND t.seed IN (SELECT unnest($asked::BIGINT[]))
           OR t.trajectory_id IN (SELECT unnest($found::VARCHAR[]))
           OR split_part(t.batch_id, '/rejudged-', 1) IN (SELECT unnest($ingested::VARCHAR[])))
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
ORDER BY problem_id, rank, trajectory_id;

-- name: retokenized
-- Which correct responses to these problems, judged by the same suites, followed prompts in other tokens?
-- One per program; those that a person wrote are taken from the problem itself.
SELECT trajectory_id, problem_id, text, source
FROM (
    SELECT t.trajectory_id, t.problem_id, t.normal_hash, t.text,
        least(t.snapshot_id, judged_again.snapshot_id) AS snapshot_id,
        CASE
            WHEN t.source = 'reference' THEN 'other_model'
            WHEN t.source <> 'online' THEN t.source
            WHEN json_extract_string(r.config_json, '$.train.algorithm') = 'ppo' THEN 'prior_ppo'
            ELSE 'prior_spo'
        END AS source
    FROM trajectories t
    LEFT JOIN runs r ON r.run_id = t.run_id AND t.source = 'online'
    LEFT JOIN judged_again ON judged_again.batch_id = t.batch_id
    WHERE t.prompt_id NOT IN (SELECT unnest($prompt_ids::VARCHAR[]))
      AND t.suite_hash IN (SELECT unnest($suite_hashes::VARCHAR[]))
      AND t.reward = 0
      AND t.source NOT IN ('human', 'pivotal_rollout')
      AND t.run_id <> $run_id
)
WHERE list_contains($sources, source) AND ($pin IS NULL OR snapshot_id <= $pin)
QUALIFY row_number() OVER (PARTITION BY problem_id, normal_hash ORDER BY trajectory_id) = 1
ORDER BY problem_id, trajectory_id;
