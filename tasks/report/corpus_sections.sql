-- name: per_problem
-- How many members of the corpus does each source give each problem?
SELECT source, problem_id, count(*) AS n FROM corpus WHERE corpus_id = ? GROUP BY ALL;

-- name: verdicts
-- What did the sandbox say of programs for these suites?
SELECT program_hash, suite_hash, any_value(verdict) AS verdict, any_value(detail) AS detail FROM verdicts
WHERE list_contains(?, suite_hash) GROUP BY ALL;
