-- name: pace
-- How many steps has this run trained, on how many online trajectories, and how many scored ones does it have?
-- Scored ones count in whole groups: what lacks a response to compare with is never trained on.
SELECT coalesce(max(step), 0) AS steps,
  coalesce(sum(len(list_filter(sources, lambda s: s = 'online'))), 0) AS trained,
  (SELECT coalesce(sum(n // $group * $group), 0)::BIGINT FROM (
      SELECT count(*) AS n FROM trajectories WHERE run_id = $run AND source = 'online' AND reward IS NOT NULL
      GROUP BY CASE WHEN $group > 1 THEN batch_id END, CASE WHEN $group > 1 THEN problem_id END
  )) AS scored
FROM train_batches WHERE run_id = $run;
