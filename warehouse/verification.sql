-- name: rows_by_batch
-- How many rows of each batch does a table have, up to a snapshot?
SELECT batch_id, any_value(run_id) AS run_id, count(*) AS n, max(snapshot_id) AS snapshot
FROM stored."{table}"
WHERE snapshot_id <= ?
GROUP BY batch_id;

-- name: leaks
-- Which prompts contain a hidden test's expected output that neither the statement nor a public test shows?
SELECT DISTINCT prompt_id, problem_id, position
FROM prompts
JOIN tests USING (problem_id)
JOIN problems USING (problem_id)
WHERE hidden AND length(trim(expected)) >= ? AND contains(prompts.text, trim(expected))
    AND NOT contains(coalesce(statement, ''), trim(expected))
    AND NOT contains(CAST(coalesce(public_tests, []) AS VARCHAR), trim(expected))
ORDER BY ALL;
