-- name: records
-- How did each stage of a run end last?
SELECT stage, key, status, seconds, "rows", snapshot_in, manifest_json, created_at, snapshot_id FROM stages WHERE run_id = ?
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY arrival DESC) = 1;

-- name: failures
-- How did each stage of a run stop last without an end: as failed or as cancelled, and with what?
SELECT stage, kind, message, snapshot_id FROM run_events WHERE run_id = ? AND kind IN ('failed', 'cancelled')
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY arrival DESC) = 1;

-- name: costs
-- What did every stage of the newest five runs with this reference policy cost, those of the same recipe first?
-- All attempts count: the one that completed may have done the end only of what the configuration asks for.
SELECT c.stage, c.seconds / c.executions AS seconds, ceil(c."rows" / c.executions) AS "rows", r.config_json
FROM cost_by_stage c JOIN runs r ON r.run_id = c.run_id
WHERE c.executions > 0 AND (c."rows" > 0 OR c.stage = 'report')
  AND json_extract_string(r.config_json, '$.reference.model') = $1
  AND json_extract_string(r.config_json, '$.engine.kind') = $2 AND c.stage = ANY($4)
QUALIFY row_number() OVER (PARTITION BY c.stage ORDER BY r.recipe = $3 DESC, r.arrival DESC) <= 5
ORDER BY c.stage, r.recipe = $3 DESC, r.arrival DESC;
