-- name: places
-- When did these responses arrive (their Parquet rows are found by it)?
SELECT DISTINCT created_at FROM resident.responses
WHERE response IN (SELECT hash(unnest($ids))) AND origin = 'trajectories';

-- name: responses
-- What are these trajectories: their problem, verdict, author and age?
SELECT trajectory_id, problem_id, source, verdict, reward, temperature, step, tokens, run_id, policy
FROM (SELECT unnest($ids) AS trajectory_id) JOIN resident.responses ON response = hash(trajectory_id)
WHERE origin = 'trajectories'
QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY reward IS NULL, arrival DESC) = 1;

-- name: trajectory
-- What is all that was kept of this trajectory, as it was judged last?
SELECT * FROM trajectories
WHERE created_at IN (SELECT unnest($moments)) AND trajectory_id = $id
QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY reward IS NULL, arrival DESC) = 1;

-- name: beginning_so
-- Which trajectories have an id that begins so?
SELECT DISTINCT trajectory_id FROM trajectories WHERE starts_with(trajectory_id, $id) LIMIT 20;

-- name: sample
-- What is all that was kept of this sample of an evaluation, as it was judged last? Addresses of before lack prompt and way.
SELECT * FROM eval_samples
WHERE created_at IN (
      SELECT created_at FROM resident.responses
      WHERE policy = $policy AND problem_id = $problem AND origin = 'eval_samples'
  )
  AND policy_id = $policy AND problem_id = $problem AND sample = $sample AND coalesce(seed, 0) = $seed
  AND ($prompt = '' OR prompt_id = $prompt) AND ($way = '' OR sampling = $way)
ORDER BY reward IS NULL, arrival DESC LIMIT 1;

-- name: texts
-- What are the texts of these programs of a problem, as they were written first?
WITH written AS (
    SELECT normal_hash, program_hash, text, trajectory_id, suite_hash, arrival, 0 AS place, NULL AS policy_id,
           NULL AS prompt_id, NULL AS sampling, NULL AS sample, NULL AS seed
    FROM trajectories
    WHERE created_at IN (SELECT unnest($moments)) AND problem_id = $problem
      AND hash(normal_hash) IN (SELECT unnest($programs))
    UNION ALL
    SELECT normal_hash, program_hash, text, NULL, suite_hash, arrival, 1, policy_id, prompt_id, sampling, sample,
           seed
    FROM eval_samples
    WHERE created_at IN (SELECT unnest($eval_moments)) AND problem_id = $problem
      AND hash(normal_hash) IN (SELECT unnest($programs))
)
SELECT normal_hash, hash(normal_hash) AS program, program_hash, text, trajectory_id, suite_hash, policy_id, prompt_id,
       sampling, sample, seed
FROM written
QUALIFY row_number() OVER (PARTITION BY normal_hash ORDER BY place, arrival) = 1;
