-- name: fractional
-- What is the mean of exp(r / beta) over pi_0's samples at temperature 1, with r = share of tests passed - 1?
SELECT problem_id, avg(exp((tests_passed / tests_total - 1) / ?)) AS x
FROM trajectories
WHERE source = 'reference' AND policy_start = ? AND temperature = 1 AND top_p = 1 AND reward IS NOT NULL
  AND (verdict = 'cut_off' OR tests_total > 0)
  AND (problem_id, suite_hash) IN (SELECT problem_id, suite_hash FROM problems WHERE split = 'train' AND batch_id = ?)
GROUP BY problem_id ORDER BY problem_id;
