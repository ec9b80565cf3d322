-- name: known_verdicts
-- What did this version of the sandbox say of programs for these suites? As the view `known_verdicts` has it, which would
-- go through the verdicts of all suites.
SELECT program_hash, suite_hash, verdict, tests_passed, tests_total FROM verdicts
WHERE sandbox_version = ? AND verdict <> ? AND suite_hash IN (SELECT unnest(?::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY program_hash, suite_hash ORDER BY arrival) = 1;
