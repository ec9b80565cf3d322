-- name: schema
-- (internal) What is kept of every response in memory, and what of it a chosen snapshot shows.
ATTACH ':memory:' AS resident (COMPRESS);
CREATE TABLE resident.narrow (
    arrival BIGINT, snapshot_id BIGINT, created_at TIMESTAMPTZ, batch_id VARCHAR, run_id VARCHAR, origin VARCHAR,
    problem_id VARCHAR, source VARCHAR, author VARCHAR, policy VARCHAR, step BIGINT, temperature DOUBLE,
    response UBIGINT, program UBIGINT, solution UBIGINT, reward DOUBLE, verdict VARCHAR, tokens BIGINT
);
CREATE TABLE resident.left_out (bad_batch_id VARCHAR, superseded BOOLEAN, snapshot_id BIGINT);
CREATE TABLE resident.pi_0 (policy_id VARCHAR);
CREATE VIEW resident.responses AS
SELECT * FROM resident.narrow
WHERE snapshot_id <= getvariable('shown_snapshot')
  AND batch_id NOT IN (
      SELECT bad_batch_id FROM resident.left_out WHERE snapshot_id <= getvariable('shown_snapshot') OR NOT superseded
  );

-- name: trajectories
-- (internal) Which trajectories became visible in these snapshots, without their tokens and texts?
INSERT INTO resident.narrow
SELECT rowid, snapshot_id, created_at, batch_id, run_id, 'trajectories', problem_id, source,
       CASE source WHEN 'reference' THEN 'pi_0' WHEN 'pivotal_rollout' THEN 'pi_0' WHEN 'human' THEN 'person'
                   WHEN 'other_model' THEN 'other model' ELSE 'training' END,
       policy_start, step, temperature, hash(trajectory_id), hash(normal_hash),
       CASE WHEN normal_hash IS NOT NULL THEN hash(problem_id, normal_hash) END, reward, verdict,
       len(token_ids) - coalesce(prefix_tokens, 0)
FROM {rows} WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: eval_samples
-- (internal) Which samples of evaluations became visible in these snapshots, without their tokens and texts?
INSERT INTO resident.narrow
SELECT rowid, snapshot_id, created_at, batch_id, run_id, 'eval_samples', problem_id, 'evaluation', 'evaluation',
       policy_id, step, NULL, hash(policy_id || '/' || problem_id || '/' || sample || '/' || coalesce(seed, 0)),
       hash(normal_hash), CASE WHEN normal_hash IS NOT NULL THEN hash(problem_id, normal_hash) END, reward, verdict,
       len(token_ids)
FROM {rows} WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: quarantine
-- (internal) Which batches were left out in these snapshots?
INSERT INTO resident.left_out
SELECT bad_batch_id, starts_with(reason, 'superseded'), snapshot_id
FROM {rows} WHERE snapshot_id > {since} AND snapshot_id <= {newest};

-- name: policies
-- (internal) Which reference policies became known in these snapshots?
INSERT INTO resident.pi_0
SELECT policy_id FROM {rows}
WHERE kind = 'reference' AND snapshot_id > {since} AND snapshot_id <= {newest};

-- name: written_by_pi_0
-- (internal) Which samples of evaluations did a reference policy write?
UPDATE resident.narrow SET author = 'pi_0'
WHERE author = 'evaluation' AND snapshot_id > {since} AND policy IN (SELECT policy_id FROM resident.pi_0);
