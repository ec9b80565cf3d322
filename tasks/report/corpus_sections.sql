-- name: per_problem
-- How many members of the corpus does each source give each problem?
SELECT source, problem_id, count(*) AS n FROM corpus WHERE corpus_id = ? GROUP BY ALL;

-- name: verdicts
-- What did the sandbox say of programs for these suites, the newest verdict of each (an older one may be superseded)?
SELECT program_hash, suite_hash, verdict, detail FROM verdicts
WHERE suite_hash IN (SELECT unnest(?::VARCHAR[])) AND verdict <> 'infra'
QUALIFY row_number() OVER (PARTITION BY program_hash, suite_hash ORDER BY arrival DESC) = 1;
