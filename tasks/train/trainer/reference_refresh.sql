-- name: counts
-- How often does a policy version solve each problem, in its own samples of this run at temperature 1, top-p 1?
SELECT problem_id, suite_hash, prompt_id, count(*) AS n, count(*) FILTER (reward = 0) AS k FROM trajectories
WHERE run_id = ? AND source = 'online' AND policy_start = ? AND policy_end = ? AND temperature = 1 AND top_p = 1
  AND reward IS NOT NULL
GROUP BY problem_id, suite_hash, prompt_id ORDER BY problem_id;

-- name: recorded
-- Does a batch hold counts of this reference?
SELECT count(*) FROM reference_counts WHERE batch_id = ? AND reference = ?;
