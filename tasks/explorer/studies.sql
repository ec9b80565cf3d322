-- name: members
-- Which runs did studies start, in which arm and with which seed each, and with which settings, as they were started?
SELECT run_id, study, arm, seed, newest, created_at,
       (SELECT arg_max(config_json, arrival) FROM runs WHERE runs.run_id = study_runs.run_id) AS config_json
FROM study_runs WHERE $study = '' OR study = $study
ORDER BY arrival, run_id;

-- name: arms
-- In which arm of which study are these runs, those that a study started?
SELECT DISTINCT ON (run_id) run_id, study, arm FROM study_runs WHERE list_contains($runs, run_id)
ORDER BY run_id, arrival;
