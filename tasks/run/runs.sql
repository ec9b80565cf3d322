-- name: last_failure
-- What did the run fail with last?
SELECT stage || ': ' || message FROM run_events WHERE run_id = ? AND kind = 'failed' ORDER BY created_at DESC LIMIT 1;

-- name: listing
-- Which runs are there, newest first, and which of their stages have ended?
SELECT r.run_id, r.recipe, r.created_at,
       (SELECT string_agg(s.stage || CASE s.status WHEN 'skipped' THEN ' (skipped)' ELSE '' END, ', '
                          ORDER BY s.created_at)
        FROM stages s WHERE s.run_id = r.run_id) AS stages
FROM runs r ORDER BY r.created_at DESC LIMIT ?;
