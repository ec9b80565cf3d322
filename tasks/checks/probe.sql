-- name: responses
-- What did pi_0 answer to some prompts when it was sampled in Q0's way?
SELECT problem_id, text, verdict, finish_reason, len(token_ids) AS tokens FROM trajectories
WHERE policy_start = $policy_id AND temperature = 1 AND top_p = 1 AND prefix_tokens = 0 AND max_response_tokens = $limit
  AND prompt_id IN (SELECT unnest($prompt_ids::VARCHAR[])) AND suite_hash IN (SELECT unnest($suites::VARCHAR[]));
