-- name: texts
-- Which texts have rows whose hashes must be computed anew?
SELECT DISTINCT text FROM {table} WHERE program_hash IS NOT NULL AND text IS NOT NULL;

-- name: update
-- Gives all rows of a text its new hashes; rows that have them already are left alone.
UPDATE {table} AS stale SET program_hash = new.program_hash, normal_hash = new.normal_hash
FROM rehashed AS new
WHERE stale.text = new.text
  AND (stale.program_hash <> new.program_hash OR stale.normal_hash IS DISTINCT FROM new.normal_hash);
