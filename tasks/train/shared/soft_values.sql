-- name: fractional
-- What rewards, r = share of tests passed - 1, did pi_0's samples get that were drawn in Q0's way for the run's prompts?
-- One that several runs drew alike is one sample.
WITH samples AS (SELECT problem_id, coalesce(tests_passed / nullif(tests_total, 0), 0) - 1 AS reward
FROM trajectories
WHERE source = 'reference' AND policy_start = $reference AND temperature = 1 AND top_p = 1 AND reward IS NOT NULL
  AND max_response_tokens = $max_response_tokens AND coalesce(prefix_tokens, 0) = 0
  AND NOT starts_with(batch_id, $left_out)
  AND ($until IS NULL OR snapshot_id <= $until
       OR batch_id IN (SELECT batch_id FROM judged_again WHERE snapshot_id <= $until))
  AND (verdict = 'cut_off' OR tests_total > 0)
  AND prompt_id IN (SELECT prompt_id FROM prompts WHERE batch_id = $prompts_batch)
  AND (problem_id, suite_hash) IN (
      SELECT problem_id, suite_hash FROM problems WHERE split = 'train' AND batch_id = $problems_batch
  )
QUALIFY row_number() OVER (PARTITION BY trajectory_id, suite_hash ORDER BY arrival) = 1)
SELECT problem_id, list(reward) AS rewards FROM samples GROUP BY problem_id ORDER BY problem_id;
