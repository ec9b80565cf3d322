-- name: put_aside
-- Which batches whose ids begin so are in quarantine, and not because another batch stands for them?
SELECT DISTINCT bad_batch_id AS batch FROM quarantine
WHERE NOT starts_with(reason, $superseded)
  AND EXISTS (FROM unnest($prefixes::VARCHAR[]) AS wanted(prefix) WHERE starts_with(bad_batch_id, prefix))
ORDER BY batch;

-- name: counted_in
-- Which such batches, whoever drew them, counted samples of a reference policy for the prompts of a batch, or of before
-- prompts were recorded?
SELECT DISTINCT batch_id AS batch FROM stored.reference_counts
WHERE reference = $reference AND sampling = $sampling
  AND (prompt_id IS NULL OR prompt_id IN (SELECT prompt_id FROM prompts WHERE batch_id = $prompts))
  AND batch_id IN (SELECT bad_batch_id FROM quarantine WHERE NOT starts_with(reason, $superseded))
ORDER BY batch;

-- name: ends
-- Which batches that a stage of any run had ended with, by what it left, are in quarantine? (Runs take over what others did.)
SELECT DISTINCT bad_batch_id AS batch
FROM quarantine JOIN (
    SELECT DISTINCT $prefix || json_extract_string(manifest_json, '$.' || $name) AS result FROM stages
    WHERE stage = $stage
) ON bad_batch_id = result OR starts_with(bad_batch_id, result || '/again-')
WHERE NOT starts_with(reason, $superseded)
ORDER BY batch;

-- name: drawn
-- How many samples of each problem are in such batches whose ids begin so?
SELECT problem_id, count(*) AS n FROM stored.trajectories
WHERE starts_with(batch_id, $prefix)
  AND batch_id IN (SELECT bad_batch_id FROM quarantine WHERE NOT starts_with(reason, $superseded))
GROUP BY problem_id;

-- name: counted
-- How many samples of a reference policy did such batches count for each problem, whoever drew them, and how many more
-- were left without a verdict in those whose ids begin so?
WITH aside AS (SELECT DISTINCT bad_batch_id FROM quarantine WHERE NOT starts_with(reason, $superseded)),
samples AS (
    SELECT problem_id, n FROM stored.reference_counts
    WHERE reference = $reference AND sampling = $sampling AND batch_id IN (FROM aside)
    UNION ALL
    SELECT problem_id, 1 FROM stored.trajectories
    WHERE starts_with(batch_id, $prefix) AND reward IS NULL AND batch_id IN (FROM aside)
)
SELECT problem_id, CAST(sum(n) AS BIGINT) AS n FROM samples GROUP BY problem_id;

-- name: rolled_out
-- How many rollouts of a reference policy after each prefix did such batches of searches count?
SELECT prefix_hash, CAST(sum(n) AS BIGINT) AS n FROM stored.token_values
WHERE reference = $reference AND starts_with(search_id, $search)
  AND batch_id IN (SELECT bad_batch_id FROM quarantine WHERE NOT starts_with(reason, $superseded))
GROUP BY prefix_hash;
