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
