-- name: unscored
-- How many samples of each problem, in batches whose id begins so, were left without a verdict by the sandbox?
SELECT problem_id, count(*) AS n FROM trajectories WHERE starts_with(batch_id, ?) AND reward IS NULL GROUP BY problem_id
