-- name: canaries
-- Which few prompts of the run are always the same ones?
SELECT prompt_id, token_ids FROM prompts WHERE batch_id = ? AND len(token_ids) > 1 ORDER BY md5(prompt_id) LIMIT 4;

-- name: batches
-- Which batches hold these trajectories?
SELECT DISTINCT batch_id FROM trajectories WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY batch_id;

-- name: scores
-- Which batches hold what is stored of these trajectories under one reference?
SELECT DISTINCT batch_id FROM reference_logprobs
WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[])) AND fingerprint = ? ORDER BY batch_id;
