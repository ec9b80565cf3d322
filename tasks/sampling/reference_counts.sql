-- name: counted
-- How often did pi_0 solve each problem of a run, over all runs, as its statement reads now, by its present tests?
-- Rows without a prompt were counted before it was recorded.
-- What rollout workers drew is left out, for their own run or for all. What was judged again counts as of when it was
-- drawn (tasks/run/judged_again.py).
SELECT problem_id, CAST(sum(n) AS BIGINT) AS n, CAST(sum(k) AS BIGINT) AS k
FROM reference_counts
WHERE reference = $reference AND sampling = $sampling AND template_id = $template_id
  AND ($left_out IS NULL OR NOT starts_with(batch_id, $left_out)) AND ($only IS NULL OR starts_with(batch_id, $only))
  AND ($until IS NULL OR snapshot_id <= $until
       OR batch_id IN (SELECT batch_id FROM judged_again WHERE snapshot_id <= $until))
  AND (prompt_id IS NULL OR (problem_id, prompt_id) IN (
      SELECT problem_id, prompt_id FROM prompts WHERE batch_id = $prompts_batch
  ))
  AND (problem_id, suite_hash) IN (
      SELECT problem_id, suite_hash FROM problems WHERE batch_id = $problems_batch AND split = $split
  )
GROUP BY problem_id ORDER BY problem_id;

-- name: drawn_before
-- Which of these responses of pi_0 are counted already, in another batch, and judged by which tests? A batch of an
-- imported file may hold responses without counting them.
SELECT DISTINCT trajectory_id, suite_hash FROM trajectories
WHERE policy_start = $reference AND batch_id <> $batch AND reward IS NOT NULL AND trajectory_id IN (SELECT unnest($ids))
  AND batch_id IN (SELECT batch_id FROM reference_counts WHERE reference = $reference);
