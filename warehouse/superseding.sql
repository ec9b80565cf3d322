-- name: successions
-- Which batch took the place of which, when, and is it shown itself?
SELECT DISTINCT bad_batch_id AS old, batch_id AS new, created_at, batch_id NOT IN (SELECT bad_batch_id FROM quarantine) AS shown
FROM quarantine
WHERE starts_with(reason, ?);
