-- name: searched
-- Which trajectories were searched for pivotal tokens, and what was found? Most pivotal tokens first.
SELECT left(trajectory_id, 12) AS trajectory, any_value(t.problem_id) AS problem, any_value(len(t.token_ids)) AS tokens,
       count(DISTINCT v.position) AS estimated, count(DISTINCT v.position) FILTER (v.pivotal) AS pivotal
FROM token_values v JOIN trajectories t USING (trajectory_id)
WHERE starts_with(v.search_id, 'annotation/') GROUP BY trajectory_id
ORDER BY pivotal DESC, estimated DESC, trajectory LIMIT ?;

-- name: trajectory
-- Which trajectories have an id that begins so, and what are their problem and prompt?
SELECT t.*, p.title, p.statement, q.token_ids AS prompt_ids
FROM trajectories t
LEFT JOIN (SELECT problem_id, arg_max(title, arrival) AS title, arg_max(statement, arrival) AS statement
           FROM problems GROUP BY problem_id) p USING (problem_id)
LEFT JOIN (SELECT prompt_id, any_value(token_ids) AS token_ids FROM prompts GROUP BY prompt_id) q USING (prompt_id)
WHERE starts_with(t.trajectory_id, ?)
QUALIFY row_number() OVER (PARTITION BY t.trajectory_id ORDER BY t.arrival) = 1
LIMIT 3;

-- name: estimates
-- What did the newest search of this trajectory find at each position?
SELECT position, n, k, coalesce(pivotal, false) AS pivotal, reference FROM token_values
WHERE trajectory_id = $id AND position > 0 AND search_id = (
    SELECT arg_max(search_id, arrival) FROM token_values
    WHERE trajectory_id = $id AND starts_with(search_id, 'annotation/')
)
ORDER BY position;

-- name: prompt_counts
-- How often did pi_0 solve the trajectory's prompt, with the tests that judged it?
SELECT coalesce(sum(n), 0) AS n, coalesce(sum(k), 0) AS k FROM reference_counts
WHERE problem_id = $problem AND suite_hash = $suite AND reference = $reference
  AND ($prompt IS NULL OR prompt_id IS NULL OR prompt_id = $prompt);

-- name: reference
-- Which reference policy was the problem sampled from last?
SELECT arg_max(reference, arrival) FROM reference_counts WHERE problem_id = ?;

-- name: policy
-- Which is the newest trained policy of a reference, or the one whose id begins so?
SELECT policy_id, path, run_id, step FROM policies
WHERE CASE WHEN $id IS NULL THEN kind = 'final' AND parent_policy_id = $reference ELSE starts_with(policy_id, $id) END
ORDER BY arrival DESC LIMIT 1;
