-- name: listing
-- Which runs are there, newest first, and which of their stages have ended?
SELECT r.run_id, r.recipe, r.created_at,
       (SELECT string_agg(s.stage || CASE s.status WHEN 'skipped' THEN ' (skipped)' ELSE '' END, ', '
                          ORDER BY s.arrival)
        FROM stages s WHERE s.run_id = r.run_id) AS stages
FROM runs r ORDER BY r.arrival DESC LIMIT ?;

-- name: latest
-- Which run is the newest of those made here, those of a certain recipe left out? Imported ones come after them.
SELECT run_id FROM runs WHERE recipe <> ? ORDER BY starts_with(batch_id, 'warehouse/'), arrival DESC LIMIT 1;
