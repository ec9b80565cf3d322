-- name: members
-- Which runs did studies start, in which arm and with which seed each?
SELECT run_id, split_part(message, '/', 2) AS study, split_part(message, '/', 3) AS arm,
       CAST(split_part(message, '/', 4) AS BIGINT) AS seed, created_at
FROM run_events
WHERE kind = 'created' AND starts_with(message, 'study/') AND ($study = '' OR split_part(message, '/', 2) = $study)
QUALIFY row_number() OVER (PARTITION BY message ORDER BY arrival DESC) = 1
ORDER BY study, arm, seed;

-- name: arms
-- In which arm of which study are these runs, those that a study started?
SELECT run_id, split_part(any_value(message), '/', 2) AS study, split_part(any_value(message), '/', 3) AS arm
FROM run_events WHERE kind = 'created' AND starts_with(message, 'study/') AND list_contains($runs, run_id)
GROUP BY run_id;
