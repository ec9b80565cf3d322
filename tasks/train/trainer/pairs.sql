-- name: selection
-- Which successes and failures of a policy, that a run could see, make pairs on its prompts, judged by its suites?
-- Different programs only, the first of each; the i-th success of a problem goes with its i-th failure, in an order that
-- has nothing to do with either. What was cut off counts only at the same length limit.
WITH there AS (
    SELECT trajectory_id, problem_id, reward = 0 AS passed
    FROM trajectories
    WHERE source = 'reference' AND policy_start = $reference AND policy_end = $reference AND reward IS NOT NULL
      AND (snapshot_id <= $until OR batch_id IN (SELECT batch_id FROM judged_again WHERE snapshot_id <= $until))
      AND len(token_ids) <= $limit
      AND (finish_reason = 'stop' OR max_response_tokens = $limit)
      AND prompt_id IN (SELECT prompt_id FROM prompts WHERE batch_id = $prompts_batch)
      AND (problem_id, suite_hash) IN (
          SELECT problem_id, suite_hash FROM problems WHERE split = 'train' AND batch_id = $problems_batch
      )
    QUALIFY row_number() OVER (
        PARTITION BY problem_id, coalesce(program_hash, trajectory_id) ORDER BY arrival, trajectory_id
    ) = 1
),
placed AS (
    SELECT *, row_number() OVER (PARTITION BY problem_id, passed ORDER BY md5(trajectory_id)) AS place FROM there
)
SELECT s.trajectory_id AS success, f.trajectory_id AS failure
FROM placed s JOIN placed f USING (problem_id, place)
WHERE s.passed AND NOT f.passed AND place <= $per_problem
ORDER BY success;

-- name: there
-- Which of these trajectories are there (not quarantined), on problems with a soft value?
SELECT DISTINCT trajectory_id FROM trajectories
WHERE trajectory_id IN (SELECT unnest($ids::VARCHAR[])) AND problem_id IN (SELECT unnest($problems::VARCHAR[]));
