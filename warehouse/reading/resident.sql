-- name: schema
-- (internal) What is kept of every response in memory, and what of it a chosen snapshot shows? `answers_to` has each
-- response to some problems once, of all runs or of one, as it was judged last.
CREATE TABLE resident.narrow (
    arrival BIGINT, snapshot_id BIGINT, created_at TIMESTAMPTZ, batch_id VARCHAR, run_id VARCHAR, origin VARCHAR,
    problem_id VARCHAR, source VARCHAR, author VARCHAR, policy VARCHAR, step BIGINT, temperature DOUBLE,
    response UBIGINT, program UBIGINT, solution UBIGINT, reward DOUBLE, verdict VARCHAR, tokens BIGINT
);
CREATE VIEW resident.responses AS
SELECT * FROM resident.narrow
WHERE snapshot_id <= getvariable('shown_snapshot')
  AND batch_id NOT IN (
      SELECT bad_batch_id FROM resident.kept.quarantine
      WHERE snapshot_id <= getvariable('shown_snapshot') OR NOT starts_with(reason, 'superseded')
  );
CREATE MACRO resident.answers_to(problems, run) AS TABLE
SELECT * FROM resident.responses WHERE problem_id IN (SELECT unnest(problems)) AND (run = '' OR run_id = run)
QUALIFY row_number() OVER (PARTITION BY origin, response ORDER BY reward IS NULL, arrival DESC) = 1;
CREATE TABLE resident.taken (
    arrival BIGINT, snapshot_id BIGINT, batch_id VARCHAR, run_id VARCHAR, step BIGINT, response UBIGINT, source VARCHAR
);
CREATE VIEW resident.uses AS
SELECT * FROM resident.taken
WHERE snapshot_id <= getvariable('shown_snapshot')
  AND batch_id NOT IN (
      SELECT bad_batch_id FROM resident.kept.quarantine
      WHERE snapshot_id <= getvariable('shown_snapshot') OR NOT starts_with(reason, 'superseded')
  );
CREATE TABLE resident.counts (
    problem_id VARCHAR, responses BIGINT, later_n BIGINT, later_k BIGINT, programs BIGINT, correct BIGINT,
    found_by_training BIGINT
);
CREATE TABLE resident.counted_until (snapshot BIGINT);
INSERT INTO resident.counted_until VALUES (0);

-- name: trajectories
-- (internal) Which trajectories became visible in these snapshots, without their tokens and texts? A reward that was
-- believed with an import is left out: the program never ran here, and counts neither as correct nor as wrong.
INSERT INTO resident.narrow
SELECT rowid, snapshot_id, created_at, batch_id, run_id, 'trajectories', problem_id, source,
       CASE source WHEN 'reference' THEN 'pi_0' WHEN 'pivotal_rollout' THEN 'pi_0' WHEN 'human' THEN 'person'
                   WHEN 'other_model' THEN 'other model' ELSE 'training' END,
       policy_start, step, temperature, hash(trajectory_id), hash(normal_hash),
       CASE WHEN normal_hash IS NOT NULL THEN hash(problem_id, normal_hash) END,
       CASE WHEN verdict IS DISTINCT FROM 'claimed' THEN reward END, verdict, len(token_ids)
FROM {rows} WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: eval_samples
-- (internal) Which samples of evaluations became visible in these snapshots, without their tokens and texts?
INSERT INTO resident.narrow
SELECT rowid, snapshot_id, created_at, batch_id, run_id, 'eval_samples', problem_id, 'evaluation', 'other model',
       policy_id, step, NULL, hash(policy_id, problem_id, prompt_id, sampling, sample, seed),
       hash(normal_hash), CASE WHEN normal_hash IS NOT NULL THEN hash(problem_id, normal_hash) END, reward, verdict,
       len(token_ids)
FROM {rows} WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: train_batches
-- (internal) Which responses did optimizer steps take that became visible in these snapshots?
INSERT INTO resident.taken
SELECT rowid, snapshot_id, batch_id, run_id, step, hash(unnest(trajectory_ids)), unnest(sources)
FROM {rows} WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: news
-- (internal) How many policies of runs and how many batches to leave out became known in these snapshots?
SELECT (SELECT count(*) FROM resident.kept.policies
        WHERE kind IN ('reference', 'snapshot', 'final') AND snapshot_id > {since} AND snapshot_id <= {newest}),
       (SELECT count(*) FROM resident.kept.quarantine WHERE snapshot_id > {since} AND snapshot_id <= {newest});

-- name: written_by
-- (internal) Which responses of these snapshots did a reference policy write, in training or in an evaluation, and which
-- samples of evaluations a policy that was trained here? (Policies may be told of after them.)
UPDATE resident.narrow SET author = known.author
FROM (
    SELECT policy_id, CASE WHEN bool_or(kind = 'reference') THEN 'pi_0' ELSE 'evaluation' END AS author
    FROM resident.kept.policies
    WHERE kind IN ('reference', 'snapshot', 'final') AND snapshot_id <= {newest}
    GROUP BY policy_id
) AS known
WHERE policy = known.policy_id AND narrow.author <> known.author
  AND (source = 'evaluation' OR (narrow.author = 'training' AND known.author = 'pi_0'))
  AND snapshot_id > {after} AND snapshot_id <= {until};

-- name: forget_counts
-- (internal) Which counts are those of problems with responses after this snapshot?
DELETE FROM resident.counts
WHERE problem_id IN (SELECT problem_id FROM resident.narrow WHERE snapshot_id > {since});

-- name: count
-- (internal) What are the counts of the problems that have responses after snapshot `since`? (A few are read once.)
INSERT INTO resident.counts
WITH touched AS {kept} (
    SELECT problem_id, author, reward, solution, origin, response, arrival FROM resident.narrow
    WHERE problem_id IN (SELECT problem_id FROM resident.narrow WHERE snapshot_id > {since})
      AND batch_id NOT IN (SELECT bad_batch_id FROM resident.kept.quarantine WHERE snapshot_id <= {newest})
)
SELECT * FROM ({counted});

-- name: counted
-- (internal) How many responses (each once, in however many batches it lies), passes since pi_0, different programs and finds of training has each problem?
WITH several AS (
    SELECT origin, response FROM {responses} GROUP BY ALL HAVING count(*) > 1
),
again AS (
    SELECT origin, arrival FROM {responses} SEMI JOIN several USING (origin, response)
    QUALIFY row_number() OVER (PARTITION BY origin, response ORDER BY reward IS NULL, arrival DESC) > 1
),
answers AS (
    SELECT problem_id, count(*) AS responses, count(reward) FILTER (author IN ('training', 'evaluation')) AS later_n,
           count(*) FILTER (author IN ('training', 'evaluation') AND reward = 0) AS later_k
    FROM {responses} ANTI JOIN again USING (origin, arrival) GROUP BY problem_id
),
programs AS (
    SELECT any_value(problem_id) AS problem_id, bool_or(reward = 0) AS correct,
           bool_or(author IN ('pi_0', 'person', 'other model')) AS given,
           bool_or(author = 'training' AND reward = 0) AS by_training
    FROM {responses} WHERE solution IS NOT NULL GROUP BY solution
),
found AS (
    SELECT problem_id, count(*) AS programs, count(*) FILTER (correct) AS correct,
           count(*) FILTER (by_training AND NOT given) AS found_by_training
    FROM programs GROUP BY problem_id
)
SELECT problem_id, responses, later_n, later_k, coalesce(programs, 0) AS programs, coalesce(correct, 0) AS correct,
       coalesce(found_by_training, 0) AS found_by_training
FROM answers LEFT JOIN found USING (problem_id);

-- name: by_problem
-- (internal) The same of the shown snapshot: as it is kept where it is the newest, else counted anew.
CREATE VIEW resident.by_problem AS
SELECT * FROM resident.counts WHERE getvariable('counted')
UNION ALL
SELECT * FROM ({anew});
