-- name: canaries
-- Which few prompts of the run are always the same ones?
SELECT prompt_id, token_ids FROM prompts WHERE batch_id = ? AND len(token_ids) > 1 ORDER BY md5(prompt_id) LIMIT 4;

-- name: batches
-- Which batches hold these trajectories, or what is stored of them?
SELECT DISTINCT batch_id FROM {table} WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY batch_id;
