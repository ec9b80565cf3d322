-- name: uses
-- Which online trajectories had this run trained on up to a step, when and how often, that can still be used again?
SELECT trajectory_id, min(step) AS first, max(step) AS last, count(*) AS uses
FROM (
    SELECT step, unnest(trajectory_ids) AS trajectory_id, unnest(sources) AS source FROM train_batches
    WHERE run_id = $run AND step <= $after AND step > $after - $window
)
WHERE source IN ('online', 'replay')
GROUP BY trajectory_id
HAVING bool_or(source = 'online') AND count(*) < $uses
ORDER BY first, trajectory_id;

-- name: first_used
-- What did the batches of this run hold, in their order, within a window of steps up to one?
SELECT trajectory_ids, sources FROM train_batches
WHERE run_id = $run AND step <= $after AND step > $after - $window
ORDER BY step;
