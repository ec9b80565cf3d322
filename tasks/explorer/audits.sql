-- name: audits
-- What did the newest audit of each suite of the problem find: how many programs, inputs, and inputs on which they part?
SELECT audit_id, suite_hash, sandbox_version, len(programs) AS programs, len(solutions) AS solutions, inputs, discarded,
       discarded_json, behaviours, disagreeing, len(unstable) AS unstable, created_at, snapshot_id
FROM audits WHERE problem_id = $problem
QUALIFY row_number() OVER (PARTITION BY suite_hash ORDER BY arrival DESC) = 1
ORDER BY arrival DESC;

-- name: findings
-- On which new inputs do programs part that all passed the tests?
SELECT position, input, expected, basis, groups, dissenters FROM audit_findings
WHERE audit_id = $audit ORDER BY position;

-- name: suites
-- By which suites was the problem judged: those it came with, and those that accepted findings made of them?
WITH given AS (
    SELECT suite_hash, NULL::VARCHAR AS parent, 1::BIGINT AS version, 0::BIGINT AS added, min(arrival) AS place,
           min(created_at) AS created_at
    FROM problems WHERE problem_id = $problem AND suite_hash IS NOT NULL GROUP BY suite_hash
),
made AS (
    SELECT suite_hash, parent_suite_hash AS parent, version, len(added) AS added, arrival AS place, created_at
    FROM suite_versions WHERE problem_id = $problem
    QUALIFY row_number() OVER (PARTITION BY suite_hash ORDER BY arrival DESC) = 1
)
SELECT * FROM made
UNION ALL
SELECT * FROM given WHERE suite_hash NOT IN (SELECT suite_hash FROM made)
ORDER BY version, place;

-- name: counts
-- How often did pi_0 pass, by suite, as it was last asked?
WITH newest AS (
    SELECT reference, sampling, template_id, prompt_id FROM reference_counts
    WHERE problem_id = $problem ORDER BY arrival DESC LIMIT 1
)
SELECT counts.suite_hash, CAST(sum(n) AS BIGINT) AS n, CAST(sum(k) AS BIGINT) AS k
FROM reference_counts AS counts JOIN newest USING (reference, sampling, template_id)
WHERE problem_id = $problem AND (counts.prompt_id IS NULL OR counts.prompt_id = newest.prompt_id)
GROUP BY counts.suite_hash;

-- name: judged
-- How many different programs did each of these suites judge, and how many did it accept?
SELECT suite_hash, count(DISTINCT program_hash) AS programs,
       count(DISTINCT program_hash) FILTER (verdict = 'accepted') AS accepted
FROM verdicts WHERE suite_hash IN (SELECT unnest($suites)) GROUP BY suite_hash;
