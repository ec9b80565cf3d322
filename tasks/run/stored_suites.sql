-- name: problems
-- Which problems are judged by these suites, as they were stored last?
SELECT * FROM problems WHERE suite_hash IN (SELECT unnest($suites::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY problem_id, suite_hash ORDER BY arrival DESC) = 1
ORDER BY arrival;

-- name: tests
-- What are the tests of these suites?
SELECT * FROM tests WHERE suite_hash IN (SELECT unnest($suites::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY problem_id, suite_hash, position ORDER BY arrival DESC) = 1;

-- name: settings
-- How were runs configured, the newest first?
SELECT config_json FROM runs ORDER BY arrival DESC;
