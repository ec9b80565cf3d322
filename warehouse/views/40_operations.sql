-- Which state is each run in, at which stage, and when was its last sign (what was killed without a word stays `running`)?
CREATE OR REPLACE VIEW run_states AS
WITH ended AS (
    SELECT run_id, bool_or(stage = 'evaluate') AS evaluated, arg_max(created_at, arrival) AS seen,
           max(snapshot_id) AS snapshot_id
    FROM stages
    GROUP BY run_id
),
events AS (
    SELECT run_id, arg_max(kind, arrival) AS kind, arg_max(stage, arrival) AS stage,
           arg_max(created_at, arrival) AS seen, max(snapshot_id) AS snapshot_id
    FROM run_events
    WHERE NOT contains(batch_id, '/rejudged-')  -- written when it was judged again, which is no sign of the run
    GROUP BY run_id
),
signs AS (
    SELECT run_id, kind, events.stage, evaluated, ended.seen AS ended_at, events.seen AS event_at,
           events.snapshot_id > coalesce(ended.snapshot_id, 0) AS event_is_newer
    FROM (SELECT DISTINCT run_id FROM runs) LEFT JOIN ended USING (run_id) LEFT JOIN events USING (run_id)
)
SELECT run_id,
       CASE WHEN event_is_newer AND kind IN ('failed', 'cancelled') THEN kind
            WHEN coalesce(evaluated, false) THEN 'finished' ELSE 'running' END AS state,
       stage, if(event_is_newer, event_at, ended_at) AS seen
FROM signs;

-- What did each stage of each run cost, its attempts that were killed or failed included until their last sign of life?
CREATE OR REPLACE VIEW cost_by_stage AS
WITH attempts AS (
    SELECT run_id, stage, created_at AS began, snapshot_id AS first,
           lead(snapshot_id) OVER (PARTITION BY run_id, stage ORDER BY arrival) AS next
    FROM run_events
    WHERE kind = 'started'
),
signs AS (
    SELECT run_id, stage, created_at AS seen, snapshot_id, batch_id FROM run_events
    WHERE coalesce(json_extract_string(payload_json, '$.begun'), '') <> 'false'  -- failed before its body began
    UNION ALL
    SELECT run_id, 'q0', created_at, snapshot_id, batch_id FROM reference_counts WHERE starts_with(batch_id, 'q0/')
    UNION ALL
    SELECT run_id, 'pivotal', created_at, snapshot_id, batch_id FROM token_values
    UNION ALL
    SELECT run_id, 'train', created_at, snapshot_id, batch_id FROM train_batches
    UNION ALL
    SELECT run_id, 'evaluate', created_at, snapshot_id, batch_id FROM eval_samples
),
unfinished AS (
    SELECT run_id, stage, began, first, next
    FROM attempts
    WHERE NOT EXISTS (
        FROM stages
        WHERE stages.run_id = attempts.run_id AND stages.stage = attempts.stage AND status <> 'skipped'
          AND snapshot_id >= first AND (next IS NULL OR snapshot_id < next)
    )
),
paid AS (
    SELECT run_id, stage, 1 AS executions, seconds, rows FROM stages WHERE status <> 'skipped'
    UNION ALL
    SELECT run_id, stage, 0, greatest(0, max(epoch(seen) - epoch(began))), 0
    FROM unfinished JOIN signs USING (run_id, stage)
    WHERE snapshot_id >= first AND (next IS NULL OR snapshot_id < next)
      AND NOT contains(batch_id, '/rejudged-')  -- written when it was judged again, which is no work of the stage
    GROUP BY run_id, stage, first
)
SELECT run_id, stage, sum(executions)::BIGINT AS executions, sum(seconds) AS seconds, sum(rows)::BIGINT AS rows,
       sum(rows) / nullif(sum(seconds), 0) AS rows_per_s
FROM paid
GROUP BY run_id, stage;

-- Which responses could not be scored, where and why (infrastructure failures; they are never rewards)?
CREATE OR REPLACE VIEW unscored AS
SELECT 'trajectories' AS found_in, run_id, problem_id, trajectory_id AS response, verdict, worker, created_at
FROM trajectories
WHERE reward IS NULL
UNION ALL
SELECT 'eval_samples', run_id, problem_id, policy_id || '/' || sample, verdict, NULL, created_at
FROM eval_samples
WHERE reward IS NULL;

-- Where does each policy come from: its ancestors back to the reference, the run that made it, and what it was trained on?
CREATE OR REPLACE VIEW lineage AS
WITH RECURSIVE known AS (
    SELECT DISTINCT ON (policy_id) policy_id, kind, step, parent_policy_id, path, run_id
    FROM policies
    ORDER BY kind = 'evaluated', arrival
),
ancestry AS (
    SELECT policy_id, policy_id AS ancestor, parent_policy_id AS next, 0 AS generation FROM known
    UNION
    SELECT below.policy_id, above.policy_id, above.parent_policy_id, generation + 1
    FROM ancestry AS below
    JOIN known AS above ON above.policy_id = below.next
    WHERE generation < 1000
),
until AS (
    SELECT run_id, step, max(max(max_snapshot)) OVER so_far AS data_snapshot,
           CAST(sum(sum(len(trajectory_ids))) OVER so_far AS BIGINT) AS trained_on
    FROM train_batches
    GROUP BY run_id, step
    WINDOW so_far AS (PARTITION BY run_id ORDER BY step)
),
trained AS (
    SELECT policy_id, until.data_snapshot, until.trained_on
    FROM known ASOF JOIN until ON until.run_id = known.run_id AND until.step <= known.step
    WHERE known.kind IN ('snapshot', 'final')
)
SELECT ancestry.policy_id, ancestor, generation, known.kind AS ancestor_kind, known.step AS ancestor_step,
       known.run_id AS made_by_run, data_snapshot, trained_on, path AS ancestor_path
FROM ancestry
JOIN known ON known.policy_id = ancestor
LEFT JOIN trained ON trained.policy_id = ancestor
ORDER BY ancestry.policy_id, generation;

-- Which verdict is known for each program and suite: the first of each version of the judge that arrived, none of them infra?
CREATE OR REPLACE VIEW known_verdicts AS
SELECT program_hash, suite_hash, sandbox_version, verdict, tests_passed, tests_total, run_id, arrival
FROM verdicts
WHERE verdict <> 'infra'
QUALIFY row_number() OVER (PARTITION BY program_hash, suite_hash, sandbox_version ORDER BY arrival) = 1;

-- Which runs did studies start, in which arm and with which seed, and which of several of an arm and seed is the newest?
CREATE OR REPLACE VIEW study_runs AS
WITH started AS (
    SELECT regexp_extract(message, '^study/([^/]*)/(.*)/(-?[0-9]+)/[^/]*$', ['study', 'arm', 'seed']) AS origin,
           run_id, created_at, arrival
    FROM run_events
    WHERE kind = 'created' AND starts_with(message, 'study/')
)
SELECT origin.study, origin.arm, CAST(origin.seed AS BIGINT) AS seed, run_id, created_at, arrival,
       row_number() OVER (PARTITION BY origin ORDER BY arrival DESC) = 1 AS newest
FROM started
WHERE origin.seed <> '';
