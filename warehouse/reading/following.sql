-- name: quarantined
-- Which batches are left out?
SELECT bad_batch_id FROM stored.quarantine;
