-- name: corpus
-- Which trajectories of a corpus belong to problems with a soft value, without those that were quarantined since?
SELECT DISTINCT trajectory_id FROM corpus
WHERE corpus_id = ? AND problem_id IN (SELECT unnest(?::VARCHAR[]))
  AND trajectory_id IN (SELECT trajectory_id FROM trajectories WHERE reward IS NOT NULL);

-- name: pivotal
-- Which trajectories carry Monte-Carlo targets under this reference?
SELECT DISTINCT v.trajectory_id FROM token_values v JOIN trajectories t USING (trajectory_id)
WHERE v.reference = ? AND (?::VARCHAR IS NULL OR v.search_id = ?) AND v."position" > 0
  AND t.problem_id IN (SELECT unnest(?::VARCHAR[])) AND t.reward IS NOT NULL;

-- name: pivotal_rollouts
-- Which judged continuations did the pivotal search draw from this reference, of the run's prompts, judged by its suites?
-- What was cut off counts only at the same length limit.
SELECT DISTINCT trajectory_id FROM trajectories
WHERE source = 'pivotal_rollout' AND policy_start = $reference AND reward IS NOT NULL
  AND ($until::BIGINT IS NULL OR snapshot_id <= $until
       OR batch_id IN (SELECT batch_id FROM judged_again WHERE snapshot_id <= $until))
  AND len(token_ids) <= $limit AND (finish_reason = 'stop' OR max_response_tokens = $limit)
  AND problem_id IN (SELECT unnest($problems::VARCHAR[]))
  AND prompt_id IN (SELECT prompt_id FROM prompts WHERE batch_id = $prompts_batch)
  AND (problem_id, suite_hash) IN (
      SELECT problem_id, suite_hash FROM problems WHERE split = 'train' AND batch_id = $problems_batch
  );

-- name: recorded
-- Which trajectories did this run already train on after a step, and from which source?
SELECT step, trajectory_ids, sources FROM train_batches WHERE run_id = ? AND step > ? ORDER BY step;

-- name: visible
-- Which of a list of this run's trajectories are there (not quarantined)?
SELECT DISTINCT trajectory_id FROM trajectories WHERE run_id = ? AND trajectory_id IN (SELECT unnest(?::VARCHAR[]));

-- name: left_out
-- How many times has a batch been quarantined?
SELECT count(*) AS n FROM quarantine;
