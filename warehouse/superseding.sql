-- name: successions
-- Which batch took the place of which, when, and is it shown itself?
SELECT DISTINCT bad_batch_id AS old, batch_id AS new, created_at, batch_id NOT IN (SELECT bad_batch_id FROM quarantine) AS shown
FROM quarantine
WHERE starts_with(reason, ?);

-- name: view_judged_until
-- What does a table show where batches that were judged again after a snapshot are still shown instead of their successors?
-- Not where a successor itself was put aside.
CREATE OR REPLACE TEMP VIEW "{table}" AS
WITH hidden AS (
    SELECT bad_batch_id AS old, batch_id AS new, snapshot_id,
           starts_with(reason, 'superseded') AND contains(batch_id, '/rejudged-') AS judged_again
    FROM {stored}.quarantine
)
SELECT *, snapshot_id, rowid AS arrival
FROM {stored}."{table}"
WHERE batch_id NOT IN (
    SELECT old FROM hidden WHERE NOT judged_again OR snapshot_id <= {until}
    UNION ALL
    SELECT new FROM hidden WHERE judged_again AND snapshot_id > {until}
    UNION ALL
    SELECT hidden.old FROM hidden JOIN hidden AS aside ON aside.old = hidden.new WHERE NOT aside.judged_again
);
