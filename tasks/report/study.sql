-- name: cost
-- What did training cost?
SELECT (SELECT seconds FROM cost_by_stage WHERE run_id = $run AND stage = 'train') AS "train s",
       (SELECT sum(seconds) FROM (SELECT any_value(value) AS seconds FROM train_steps
                                  WHERE run_id = $run AND name = 'wait_s' GROUP BY step)) AS "waiting s",
       (SELECT count(*) FROM trajectories WHERE run_id = $run AND source = 'online') AS "online trajectories",
       (SELECT sum(len(token_ids)) FROM trajectories WHERE run_id = $run AND source = 'online') AS "online tokens",
       (SELECT max(value) FROM train_steps WHERE run_id = $run AND name = 'peak_memory_mb') AS "peak MB";

-- name: problems
-- Which problems were trained and evaluated on, by what they say and how they are judged?
SELECT split, problem_id, content_hash FROM problems WHERE batch_id = $batch ORDER BY ALL;
