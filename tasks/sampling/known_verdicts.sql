-- name: known_verdicts
-- What did this version of the sandbox say of programs for these suites?
SELECT program_hash, suite_hash, verdict, tests_passed, tests_total FROM known_verdicts
WHERE sandbox_version = ? AND verdict <> ? AND list_contains(?, suite_hash);
