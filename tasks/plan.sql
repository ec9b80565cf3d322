-- name: records
-- How did each stage of a run end last?
SELECT stage, key, status, seconds, "rows", snapshot_in, manifest_json, created_at, snapshot_id FROM stages WHERE run_id = ?
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY arrival DESC) = 1;

-- name: failures
-- How did each stage of a run stop last without an end: as failed or as cancelled, and with what?
SELECT stage, kind, message, snapshot_id FROM run_events WHERE run_id = ? AND kind IN ('failed', 'cancelled')
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY arrival DESC) = 1;

-- name: costs
-- What did the newest five executions of every stage with this reference policy cost, those of the same recipe first?
SELECT s.stage, s.seconds, s."rows" AS "rows", r.config_json FROM stages s JOIN runs r ON r.run_id = s.run_id
WHERE s.status = 'completed' AND (s."rows" > 0 OR s.stage = 'report')
  AND json_extract_string(r.config_json, '$.reference.model') = $1
  AND json_extract_string(r.config_json, '$.engine.kind') = $2 AND s.stage = ANY($4)
QUALIFY row_number() OVER (PARTITION BY s.stage ORDER BY r.recipe = $3 DESC, s.arrival DESC) <= 5
ORDER BY s.stage, r.recipe = $3 DESC, s.arrival DESC;
