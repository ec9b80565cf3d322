-- name: tests
-- Which tests does a suite of a problem have, each once, in however many batches it lies?
SELECT * FROM tests WHERE problem_id = ? AND suite_hash = ?
QUALIFY row_number() OVER (PARTITION BY position ORDER BY arrival) = 1
ORDER BY position;
