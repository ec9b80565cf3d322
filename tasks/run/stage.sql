-- name: finished
-- What did the newest finished execution of a stage leave: the one with a key, or that of a run?
SELECT manifest_json FROM stages
WHERE stage = $stage AND status IN ('completed', 'skipped')
  AND ($key IS NULL OR key = $key) AND ($run_id IS NULL OR run_id = $run_id)
ORDER BY created_at DESC LIMIT 1;
