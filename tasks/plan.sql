-- name: records
-- How did each stage of a run end last?
SELECT stage, key, status, seconds, "rows", snapshot_in, manifest_json, created_at FROM stages WHERE run_id = ?
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY created_at DESC) = 1;

-- name: failures
-- What did each stage of a run fail with last?
SELECT stage, message, created_at FROM run_events WHERE run_id = ? AND kind = 'failed'
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY created_at DESC) = 1;

-- name: costs
-- What did the newest executions of a stage with this reference policy cost, those of the same recipe first?
SELECT s.seconds, s."rows" AS "rows", r.config_json FROM stages s JOIN runs r ON r.run_id = s.run_id
WHERE s.stage = ? AND s.status = 'completed' AND (s."rows" > 0 OR s.stage = 'report')
  AND json_extract_string(r.config_json, '$.reference.model') = ?
  AND json_extract_string(r.config_json, '$.engine.kind') = ?
ORDER BY r.recipe = ? DESC, s.created_at DESC LIMIT 5;
