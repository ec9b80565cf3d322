-- name: taken_in
-- How many of the programs that the problems come with were taken in for these prompts and suites, by problem?
SELECT problem_id, count(DISTINCT trajectory_id) AS n FROM trajectories
WHERE source = 'human' AND starts_with(batch_id, 'import/human/')
  AND prompt_id IN (SELECT unnest(?::VARCHAR[])) AND suite_hash IN (SELECT unnest(?::VARCHAR[]))
GROUP BY problem_id;
