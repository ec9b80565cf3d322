-- name: live_files
-- Which Parquet files does the newest snapshot have?
SELECT t.table_name AS name, f.path AS path, f.path_is_relative AS near, f.record_count AS rows,
       f.file_size_bytes AS bytes, s.path AS schema_path, t.path AS table_path
FROM {metadata}.ducklake_data_file AS f
JOIN {metadata}.ducklake_table AS t USING (table_id)
JOIN {metadata}.ducklake_schema AS s USING (schema_id)
WHERE f.end_snapshot IS NULL AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL;

-- name: kept_files
-- Which files does any snapshot read? Files that updates replaced, too, and those that list deleted rows.
SELECT f.path AS path, f.path_is_relative AS near, s.path AS schema_path, t.path AS table_path
FROM (
    SELECT table_id, path, path_is_relative FROM {metadata}.ducklake_data_file
    UNION ALL
    SELECT table_id, path, path_is_relative FROM {metadata}.ducklake_delete_file
) AS f
JOIN (SELECT DISTINCT table_id, schema_id, path FROM {metadata}.ducklake_table) AS t USING (table_id)
JOIN (SELECT DISTINCT schema_id, path FROM {metadata}.ducklake_schema) AS s USING (schema_id);

-- name: pinned_snapshots
-- Which snapshots do runs and stages refer to?
SELECT snapshot AS pinned FROM runs WHERE snapshot IS NOT NULL
UNION SELECT snapshot_in FROM stages WHERE snapshot_in IS NOT NULL
UNION SELECT snapshot_out FROM stages WHERE snapshot_out IS NOT NULL;

-- name: expired
-- Which snapshots, oldest first, are not among the pinned ones and too old or too many? The newest is neither.
SELECT snapshot_id FROM (
    SELECT snapshot_id, CAST(snapshot_time AS TIMESTAMPTZ) AS made, row_number() OVER (ORDER BY snapshot_id DESC) AS place
    FROM {metadata}.ducklake_snapshot
)
WHERE place > 1 AND snapshot_id NOT IN (SELECT unnest(?::BIGINT[])) AND (place > ? OR made < now() - to_seconds(?::DOUBLE))
ORDER BY snapshot_id LIMIT ?;

-- name: merge
-- Merge files of a table that are smaller than a size into one larger file.
CALL ducklake_merge_adjacent_files(
    'lake', ?, schema => 'stored', max_file_size => {smaller_than}, max_compacted_files => 1
);
