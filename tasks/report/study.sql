-- name: cost
-- What did training cost?
SELECT (SELECT max(seconds) FROM stages WHERE run_id = $run AND stage = 'train' AND status = 'completed') AS "train s",
       (SELECT sum(seconds) FROM (SELECT any_value(value) AS seconds FROM train_steps
                                  WHERE run_id = $run AND name = 'wait_s' GROUP BY step)) AS "waiting s",
       (SELECT count(*) FROM trajectories WHERE run_id = $run AND source = 'online') AS "online trajectories",
       (SELECT max(value) FROM train_steps WHERE run_id = $run AND name = 'peak_memory_mb') AS "peak MB";
