-- name: pace
-- How many steps has this run trained, on how many online trajectories, and how many scored ones does it have?
SELECT coalesce(max(step), 0) AS steps,
  coalesce(sum(len(list_filter(sources, lambda s: s = 'online'))), 0) AS trained,
  (SELECT count(*) FROM trajectories WHERE run_id = $run AND source = 'online' AND reward IS NOT NULL) AS scored
FROM train_batches WHERE run_id = $run;
