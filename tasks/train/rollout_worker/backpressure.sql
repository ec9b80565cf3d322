-- name: pace
-- How many steps has this run trained, on how many online trajectories, and how many scored ones does it have?
-- Scored ones count in whole groups: what lacks a response to compare with is never trained on. What was trained on and
-- is in quarantine since counts as scored, too: it does not wait for the trainer, and nothing need be sampled for it.
WITH scored AS (
    SELECT trajectory_id, batch_id, problem_id FROM trajectories
    WHERE run_id = $run AND source = 'online' AND reward IS NOT NULL
),
used AS (
    SELECT unnest(trajectory_ids) AS trajectory_id, unnest(sources) AS source FROM train_batches WHERE run_id = $run
)
SELECT (SELECT coalesce(max(step), 0) FROM train_batches WHERE run_id = $run) AS steps,
  (SELECT count(*) FROM used WHERE source = 'online') AS trained,
  (SELECT coalesce(sum(n // $group * $group), 0)::BIGINT FROM (
      SELECT count(*) AS n FROM scored
      GROUP BY CASE WHEN $group > 1 THEN batch_id END, CASE WHEN $group > 1 THEN problem_id END
  )) + (SELECT count(*) FROM used ANTI JOIN scored USING (trajectory_id) WHERE source = 'online') AS scored;
