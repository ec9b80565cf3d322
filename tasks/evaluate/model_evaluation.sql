-- name: training_problems
-- Which problems do runs train on, every version of each once? Another set may have another problem of the same name.
SELECT * FROM problems WHERE split = 'train'
QUALIFY row_number() OVER (PARTITION BY problem_id, content_hash, suite_hash ORDER BY arrival DESC) = 1;

-- name: tests
-- Which tests have these suites?
SELECT DISTINCT ON (problem_id, suite_hash, position) * FROM tests WHERE suite_hash IN (SELECT unnest(?::VARCHAR[]));

-- name: trained_steps
-- After how many optimizer steps did a run here keep this policy? Nothing for one that was not trained here.
SELECT max(step) FROM policies WHERE policy_id = ? AND kind IN ('snapshot', 'final');
