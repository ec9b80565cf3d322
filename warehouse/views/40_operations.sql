-- What did each stage of each run cost?
CREATE OR REPLACE VIEW cost_by_stage AS
SELECT run_id, stage, count(*) AS executions, sum(seconds) AS seconds, CAST(sum(rows) AS BIGINT) AS rows,
       sum(rows) / nullif(sum(seconds), 0) AS rows_per_s
FROM stages
WHERE status <> 'skipped'
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
    ORDER BY arrival
),
ancestry AS (
    SELECT policy_id, policy_id AS ancestor, parent_policy_id AS next, 0 AS generation FROM known
    UNION
    SELECT below.policy_id, above.policy_id, above.parent_policy_id, generation + 1
    FROM ancestry AS below
    JOIN known AS above ON above.policy_id = below.next
    WHERE generation < 1000
),
trained AS (
    SELECT run_id, max(max_snapshot) AS data_snapshot, CAST(sum(len(trajectory_ids)) AS BIGINT) AS trained_on
    FROM train_batches
    GROUP BY run_id
)
SELECT ancestry.policy_id, ancestor, generation, known.kind AS ancestor_kind, known.step AS ancestor_step,
       known.run_id AS made_by_run, data_snapshot, trained_on, path AS ancestor_path
FROM ancestry
JOIN known ON known.policy_id = ancestor
LEFT JOIN trained ON trained.run_id = known.run_id AND known.kind <> 'reference'
ORDER BY ancestry.policy_id, generation;

-- Which verdict is known for each program and suite: the first of each version of the judge that arrived, none of them infra?
CREATE OR REPLACE VIEW known_verdicts AS
SELECT program_hash, suite_hash, sandbox_version, verdict, tests_passed, tests_total, run_id, arrival
FROM verdicts
WHERE verdict <> 'infra'
QUALIFY row_number() OVER (PARTITION BY program_hash, suite_hash, sandbox_version ORDER BY arrival) = 1;
