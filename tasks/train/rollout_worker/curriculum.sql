-- name: evidence
-- How often had this run's rollouts solved each problem, by optimizer step of their weights, when a worker's last batch
-- before this one arrived?
SELECT problem_id, coalesce(step, 0) AS step, count(*) AS n, count(*) FILTER (reward = 0) AS k
FROM trajectories
WHERE run_id = $run AND source = 'online' AND reward IS NOT NULL AND snapshot_id <= (
    SELECT max(snapshot_id) FROM trajectories
    WHERE run_id = $run AND starts_with(batch_id, $worker) AND batch_id < $batch
)
GROUP BY ALL ORDER BY problem_id, step;
