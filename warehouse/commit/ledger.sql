-- name: tables
-- What is remembered beside the catalog: single values, and one row per committed batch.
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    batch_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, snapshot INTEGER NOT NULL, files TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batches_of_runs ON batches (run_id, snapshot);
CREATE INDEX IF NOT EXISTS batches_by_snapshot ON batches (snapshot);

-- name: batches_under
-- Which batch ids begin with this prefix? The two comparisons let the index find them; `last` sorts after all of them.
SELECT batch_id
FROM batches
WHERE batch_id >= :prefix AND batch_id < :last AND substr(batch_id, 1, length(:prefix)) = :prefix;

-- name: all_batches
-- Which batches are committed, those of earlier snapshots first?
SELECT batch_id, run_id, snapshot, files FROM batches ORDER BY snapshot, batch_id;

-- name: batches_of
-- Which batches of this run were committed after a snapshot, the earlier ones first?
SELECT batch_id, run_id, snapshot, files FROM batches WHERE run_id = ? AND snapshot > ? ORDER BY snapshot, batch_id;

-- name: newest_in
-- Which is the newest snapshot after a given one whose batches have rows in this table?
SELECT max(snapshot) FROM batches WHERE snapshot > ? AND files LIKE ?;
