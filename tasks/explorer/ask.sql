-- name: tables
-- Which tables and views are there, and which columns do they have?
SELECT table_name AS name, string_agg(column_name, ', ' ORDER BY column_index) AS columns
FROM duckdb_columns() WHERE database_name = 'lake' AND schema_name = 'main'
GROUP BY table_name ORDER BY name;
