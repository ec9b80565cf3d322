-- name: view_of_table
-- Which rows does a table show: those up to the chosen snapshot, without quarantined batches?
-- A batch that another one has superseded since is shown as of then.
CREATE OR REPLACE VIEW "{table}" AS
SELECT *, snapshot_id, rowid AS arrival
FROM stored."{table}"
WHERE batch_id NOT IN (
      SELECT bad_batch_id FROM stored.quarantine
      WHERE getvariable('at_snapshot') IS NULL OR snapshot_id <= getvariable('at_snapshot')
         OR NOT starts_with(reason, 'superseded')
  )
  AND (getvariable('at_snapshot') IS NULL OR snapshot_id <= getvariable('at_snapshot'));

-- name: view_of_quarantine
-- Which batches are left out, as of the chosen snapshot?
CREATE OR REPLACE VIEW quarantine AS
SELECT *, snapshot_id, rowid AS arrival
FROM stored.quarantine
WHERE getvariable('at_snapshot') IS NULL OR snapshot_id <= getvariable('at_snapshot');

-- name: commit_messages
-- Which commits after a snapshot carry a message with their batches? (Asked of the catalog's own database.)
SELECT snapshot_id, commit_extra_info
FROM {schema}.ducklake_snapshot_changes
WHERE snapshot_id > {snapshot} AND commit_extra_info IS NOT NULL;

-- name: kept_snapshots
-- How many of the snapshots after one and up to another have not expired? (Asked of the catalog's own database.)
SELECT count(*) AS kept FROM {schema}.ducklake_snapshot WHERE snapshot_id > {after} AND snapshot_id <= {until};
