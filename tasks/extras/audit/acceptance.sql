-- name: findings
-- What did the newest audit of each problem's suite find, of suites that no accepted findings extended yet?
SELECT f.* FROM audit_findings f
JOIN (
    FROM audits QUALIFY row_number() OVER (PARTITION BY problem_id, suite_hash ORDER BY arrival DESC) = 1
) a USING (audit_id)
ANTI JOIN suite_versions v ON v.problem_id = f.problem_id AND v.parent_suite_hash = f.suite_hash
WHERE ($problems IS NULL OR list_contains($problems, f.problem_id)) AND ($majority OR f.basis = 'reference')
ORDER BY f.problem_id, f.suite_hash, f.position;

-- name: siblings
-- Which other suites of these problems are there that nothing extends yet?
SELECT DISTINCT p.problem_id, p.suite_hash FROM problems p
ANTI JOIN suite_versions v ON v.problem_id = p.problem_id AND v.parent_suite_hash = p.suite_hash
WHERE list_contains($problems, p.problem_id) AND p.unjudgeable_reason IS NULL
ORDER BY ALL;

-- name: version
-- Which version of its problem's suite is this one?
SELECT coalesce(max(version), 1) AS version FROM suite_versions WHERE problem_id = $problem AND suite_hash = $suite;

-- name: passed
-- Which different programs passed a suite that is extended, and which suite counts now?
SELECT DISTINCT ON (program_hash, suite_hash) program_hash, suite_hash, text FROM rejudged
WHERE verdict_then = 'accepted' AND suite_hash <> judged_by AND program_hash IS NOT NULL AND text IS NOT NULL
ORDER BY program_hash, suite_hash, arrival;
