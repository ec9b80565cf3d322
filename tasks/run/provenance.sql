-- name: newest_event
-- What are the details of the run's newest event of a kind?
SELECT payload_json FROM run_events WHERE run_id = ? AND kind = ? ORDER BY arrival DESC LIMIT 1;

-- name: corpus_read
-- Which snapshot did the run's corpus read last?
SELECT snapshot_in FROM stages WHERE run_id = ? AND stage = 'corpus' AND status IN ('completed', 'skipped')
ORDER BY arrival DESC LIMIT 1;

-- name: newest_keys
-- Under which key did each stage of the run end last?
SELECT stage, key FROM stages WHERE run_id = ? AND status IN ('completed', 'skipped')
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY arrival DESC) = 1;
