-- name: newest_event
-- What are the details of the run's newest event of a kind?
SELECT payload_json FROM run_events WHERE run_id = ? AND kind = ? ORDER BY snapshot_id DESC, created_at DESC LIMIT 1;

-- name: newest_keys
-- Under which key did each stage of the run end last?
SELECT stage, key FROM stages WHERE run_id = ? AND status IN ('completed', 'skipped')
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY snapshot_id DESC, created_at DESC) = 1;
