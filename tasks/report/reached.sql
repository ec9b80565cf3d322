-- name: spent
-- What had the run sampled of what it trained on, and how long had it trained, by each step?
WITH made AS (
    SELECT trajectory_id, any_value(len(token_ids)) AS tokens
    FROM trajectories WHERE run_id = $run AND source = 'online' GROUP BY trajectory_id
),
fresh AS (
    SELECT step, count(*) AS trajectories, sum(tokens) AS tokens
    FROM uses JOIN made USING (trajectory_id)
    WHERE uses.run_id = $run AND uses.use = 1
    GROUP BY step
),
clock AS (
    SELECT step, any_value(value) AS seconds FROM train_steps WHERE run_id = $run AND name = 'seconds' GROUP BY step
)
SELECT step, sum(coalesce(trajectories, 0)) OVER past AS trajectories, sum(coalesce(tokens, 0)) OVER past AS tokens,
       sum(seconds) OVER past AS seconds
FROM clock LEFT JOIN fresh USING (step)
WINDOW past AS (ORDER BY step)
ORDER BY step;
