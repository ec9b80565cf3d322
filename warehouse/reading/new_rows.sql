-- name: rows_between
-- Which rows of a table became visible in these snapshots, oldest first, quarantined batches left out?
SELECT *, snapshot_id
FROM {rows}
WHERE {bounds}
  AND batch_id NOT IN (SELECT bad_batch_id FROM stored.quarantine)
  AND ({condition})
ORDER BY snapshot_id, rowid;
