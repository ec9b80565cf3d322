-- name: schema
-- (internal) Where tables are kept in memory, and where they are shown.
ATTACH ':memory:' AS resident (COMPRESS);
CREATE SCHEMA resident.kept;
CREATE SCHEMA resident.shown;

-- name: view_of_table
-- (internal) Which rows does a table show: those up to the shown snapshot, without quarantined batches?
CREATE OR REPLACE VIEW resident.shown.{table} AS
SELECT * FROM ({rows})
WHERE batch_id NOT IN (
      SELECT bad_batch_id FROM resident.kept.quarantine
      WHERE snapshot_id <= getvariable('shown_snapshot') OR NOT starts_with(reason, 'superseded')
  )
  AND snapshot_id <= getvariable('shown_snapshot');

-- name: view_of_quarantine
-- (internal) Which batches are left out, as of the shown snapshot?
CREATE VIEW resident.shown.quarantine AS
SELECT * FROM resident.kept.quarantine WHERE snapshot_id <= getvariable('shown_snapshot');

-- name: insert
-- (internal) Which rows of a table became visible in these snapshots?
INSERT INTO resident.kept.{table}
SELECT {columns}, snapshot_id, rowid FROM {rows} WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: changes
-- (internal) What did the commits between two snapshots change? (Asked of the catalog's own database.)
SELECT snapshot_id, changes_made FROM {schema}.ducklake_snapshot_changes
WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: tables
-- (internal) Which tables are there, and by which number do commits name them? (Asked of the catalog's own database.)
SELECT DISTINCT table_id, table_name FROM {schema}.ducklake_table;

-- name: tables_with_rows
-- (internal) Which tables have ever had a file, or rows in the catalog? (Asked of the catalog's own database.)
SELECT DISTINCT table_name FROM {schema}.ducklake_table
WHERE table_id IN (SELECT table_id FROM {schema}.ducklake_data_file)
   OR table_id IN (SELECT table_id FROM {schema}.ducklake_inlined_data_tables);
