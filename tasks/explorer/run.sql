-- name: run
-- What is this run: its recipe, settings and beginning?
SELECT run_id, recipe, json_extract_string(config_json, '$.seed') AS seed, config_json, project_version, snapshot,
       created_at
FROM runs
WHERE run_id = $run ORDER BY arrival DESC LIMIT 1;

-- name: stages
-- How did each stage of the run end last, and what did it say of its result?
SELECT stage, status, seconds, "rows", snapshot_in, snapshot_out, created_at,
       json_extract_string(manifest_json, '$.summary') AS summary
FROM stages WHERE run_id = $run
QUALIFY row_number() OVER (PARTITION BY stage ORDER BY arrival DESC) = 1
ORDER BY arrival;

-- name: events
-- What happened in the run, newest first?
SELECT created_at, stage, kind, message, snapshot_id FROM run_events WHERE run_id = $run ORDER BY arrival DESC LIMIT 60;

-- name: source_mix
-- Which sources did each stretch of training train on?
SELECT max(step) AS step, source, count(*) AS sequences FROM resident.uses WHERE run_id = $run
GROUP BY source, (step - 1) // (SELECT greatest(1, ceil(max(step) / $points)) FROM resident.uses WHERE run_id = $run)
ORDER BY step, source;

-- name: staleness
-- How many optimizer steps old were the weights behind the online responses that each step trained on?
WITH made AS (SELECT DISTINCT response, step FROM resident.responses WHERE run_id = $run AND source = 'online')
SELECT used.step, avg(used.step - made.step) AS mean_steps, max(used.step - made.step) AS most_steps
FROM resident.uses AS used JOIN made USING (response)
WHERE used.run_id = $run AND used.source = 'online'
GROUP BY used.step ORDER BY used.step;

-- name: batch
-- Which trajectories did the run take at this optimizer step, in their order and from which source each?
SELECT step, unnest(trajectory_ids) AS trajectory_id, unnest(sources) AS source,
       generate_subscripts(trajectory_ids, 1) AS place
FROM (SELECT DISTINCT ON (step) * FROM train_batches WHERE run_id = $run AND step = $step ORDER BY step, arrival)
ORDER BY place;

-- name: steps
-- Which optimizer steps of the run are there?
SELECT min(step) AS first, max(step) AS last FROM resident.uses WHERE run_id = $run;

-- name: figures_of_step
-- What were the trainer's figures at this step?
SELECT name, any_value(value) AS value FROM train_steps WHERE run_id = $run AND step = $step GROUP BY name ORDER BY name;
