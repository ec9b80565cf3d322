-- name: listing
-- Which runs are there, newest first, in which arm of a study with which seed, and which of their stages have ended?
SELECT r.run_id, r.recipe,
       (SELECT any_value(concat_ws('/', study, arm, seed)) FROM study_runs m WHERE m.run_id = r.run_id) AS study,
       r.created_at,
       (SELECT string_agg(s.stage || CASE s.status WHEN 'skipped' THEN ' (skipped)' ELSE '' END, ', '
                          ORDER BY s.arrival)
        FROM stages s WHERE s.run_id = r.run_id) AS stages
FROM runs r ORDER BY r.arrival DESC LIMIT ?;

-- name: latest
-- Which run is the newest of those made here, those of a certain recipe left out? Imported ones come after them.
SELECT run_id FROM runs WHERE recipe <> ? ORDER BY starts_with(batch_id, 'warehouse/'), arrival DESC LIMIT 1;

-- name: trained_by
-- Which runs trained the policies that these runs ended with: themselves, or those whose stages they took over (of the
-- same key)? Others may have come by the same weights: a longer run on its way, one with settings that change nothing.
WITH ended AS (SELECT unnest($runs) AS run, unnest($policies) AS policy_id)
SELECT run, run_id AS trainer FROM ended JOIN policies USING (policy_id) WHERE kind IN ('snapshot', 'final')
QUALIFY row_number() OVER (PARTITION BY run ORDER BY run_id = run DESC, EXISTS (
    FROM stages theirs JOIN stages own USING (stage, key)
    WHERE stage = 'train' AND theirs.run_id = policies.run_id AND own.run_id = run
) DESC, arrival) = 1;

-- name: created_for
-- Which runs have an origin that begins so, newest first?
SELECT run_id FROM run_events WHERE kind = 'created' AND starts_with(message, ?) ORDER BY arrival DESC;
