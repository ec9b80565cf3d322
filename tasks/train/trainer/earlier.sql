-- name: selection
-- Which online trajectories of earlier runs, that a run could see, may it train on, and which of them are right?
-- Of its prompts, judged by its suites; what was cut off counts only at the same length limit.
WITH there AS (
    SELECT trajectory_id, problem_id, reward = 0 AS passed, run_id,
           (coalesce(judged_again.arrival, t.arrival), t.arrival) AS arrival
    FROM trajectories t LEFT JOIN judged_again USING (batch_id)
    WHERE source = 'online' AND run_id <> $run AND reward IS NOT NULL
      AND least(t.snapshot_id, judged_again.snapshot_id) <= $until
      AND (len($run_ids::VARCHAR[]) = 0 OR list_contains($run_ids::VARCHAR[], run_id))
      AND coalesce(step, 0) >= $from_step AND ($to_step IS NULL OR coalesce(step, 0) <= $to_step)
      AND len(token_ids) <= $limit AND (finish_reason = 'stop' OR max_response_tokens = $limit)
      AND prompt_id IN (SELECT prompt_id FROM prompts WHERE batch_id = $prompts_batch)
      AND (problem_id, suite_hash) IN (
          SELECT problem_id, suite_hash FROM problems WHERE split = 'train' AND batch_id = $problems_batch
      )
),
newest AS (
    SELECT run_id FROM there GROUP BY run_id ORDER BY min(arrival) DESC LIMIT $runs
),
responses AS (  -- runs of one seed begin with the same ones: each counts once
    SELECT * FROM there SEMI JOIN newest USING (run_id)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY arrival) = 1
)
SELECT trajectory_id, problem_id, passed FROM responses
WHERE $classes IN ('as_found', 'balanced') OR passed = ($classes = 'successes')
QUALIFY row_number() OVER (PARTITION BY problem_id, passed ORDER BY arrival DESC, trajectory_id) <= $per_problem
ORDER BY trajectory_id;

-- name: there
-- Which of these trajectories are there (not quarantined), on problems with a soft value?
SELECT DISTINCT trajectory_id FROM trajectories
WHERE trajectory_id IN (SELECT unnest($ids::VARCHAR[])) AND problem_id IN (SELECT unnest($problems::VARCHAR[]));
