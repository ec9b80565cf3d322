-- name: rows_by_batch
-- How many rows of each batch does a table have, up to a snapshot?
SELECT batch_id, any_value(run_id) AS run_id, count(*) AS n, max(snapshot_id) AS snapshot
FROM stored."{table}"
WHERE snapshot_id <= ?
GROUP BY batch_id;
