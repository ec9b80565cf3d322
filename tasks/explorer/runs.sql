-- name: runs
-- Which runs are there, newest first, and what do their stages and their evaluation say?
WITH chosen AS (
    SELECT run_id, recipe, created_at, arrival, project_version,
           json_extract_string(config_json, '$.seed') AS seed, json_extract_string(config_json, '$.train.steps') AS steps
    FROM runs
    WHERE ($recipe = '' OR recipe = $recipe) AND ($text = '' OR contains(lower(run_id), lower($text)))
),
ended AS (
    SELECT run_id, count(DISTINCT stage) AS stages, sum(seconds) AS seconds,
           string_agg(stage, ', ' ORDER BY arrival) AS names,
           arg_max(manifest_json, arrival) FILTER (stage = 'evaluate') AS evaluation
    FROM stages
    GROUP BY run_id
)
SELECT chosen.* EXCLUDE (arrival), coalesce(stages, 0) AS stages, seconds, names, evaluation,
       seen, run_states.stage AS at_stage, state
FROM chosen LEFT JOIN ended USING (run_id) JOIN run_states USING (run_id)
ORDER BY arrival DESC
LIMIT $limit OFFSET $offset;

-- name: reached
-- Which optimizer step did each of these runs record last?
SELECT run_id, max(step) AS step FROM train_batches WHERE list_contains($runs, run_id) GROUP BY run_id;

-- name: recipes
-- Which recipes were run, and how often?
SELECT recipe, count(*) AS runs FROM runs GROUP BY recipe ORDER BY recipe;

-- name: totals
-- How much is in the warehouse: responses, different programs, problems, and programs that only training found?
SELECT CAST(coalesce(sum(responses), 0) AS BIGINT) AS responses, CAST(coalesce(sum(programs), 0) AS BIGINT) AS programs,
       count(*) FILTER (programs > 0) AS problems, CAST(coalesce(sum(correct), 0) AS BIGINT) AS correct,
       CAST(coalesce(sum(found_by_training), 0) AS BIGINT) AS found_by_training
FROM resident.by_problem;

-- name: configurations
-- With which settings were these runs made?
SELECT run_id, config_json FROM runs WHERE list_contains($runs, run_id)
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY arrival DESC) = 1;

-- name: unlike
-- Were these runs, or evaluations alone, evaluated on different problems or by different tests, or sampled in different ways?
WITH prepared AS (
    SELECT run_id, arg_max(json_extract_string(manifest_json, '$.problems_batch'), arrival) AS batch,
           arg_max(json_extract_string(manifest_json, '$.sampling'), arrival) FILTER (stage = 'evaluate') AS sampling
    FROM stages
    WHERE list_contains($runs, run_id) AND stage IN ('prepare', 'evaluate') AND status IN ('completed', 'skipped')
    GROUP BY run_id
),
asked AS (
    SELECT prepared.run_id, list_sort(list(DISTINCT problem_id || ' ' || coalesce(suite_hash, ''))) AS problems
    FROM prepared JOIN problems ON problems.batch_id = batch WHERE split = 'evaluation'
    GROUP BY prepared.run_id
)
SELECT (SELECT count(DISTINCT problems) > 1 FROM asked) AS unlike,
       (SELECT count(DISTINCT sampling) > 1 FROM prepared) AS sampled_otherwise;
