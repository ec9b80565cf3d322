-- name: selection
-- Which correct trajectories of the corpus are searched, problems taking turns? Longer ones than a response may be have
-- no room for a rollout.
SELECT c.trajectory_id, t.problem_id, t.token_ids
FROM (
    SELECT trajectory_id, problem_id,
           row_number() OVER (PARTITION BY problem_id ORDER BY md5(trajectory_id)) AS turn
    FROM corpus WHERE corpus_id = $corpus_id
) c JOIN trajectories t USING (trajectory_id)
WHERE t.reward = 0 AND len(t.token_ids) BETWEEN 3 AND $longest
  AND t.problem_id IN (SELECT unnest($problem_ids::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY c.trajectory_id) = 1
ORDER BY c.turn, md5(c.trajectory_id)
LIMIT $limit;

-- name: stored
-- What did all searches of this reference policy, of any run, find at each prefix?
SELECT prefix_hash, sum(n) AS n, sum(k) AS k FROM token_values
WHERE reference = ? AND starts_with(search_id, ?) GROUP BY prefix_hash;
