-- Which programs that passed their suite are likely wrong, and on how many new inputs: of the newest audit of each suite?
CREATE OR REPLACE VIEW survivors AS
WITH newest AS (
    SELECT audit_id, problem_id, suite_hash, unnest(programs) AS program_hash, solutions, inputs
    FROM (
        FROM audits QUALIFY row_number() OVER (PARTITION BY problem_id, suite_hash ORDER BY arrival DESC) = 1
    )
),
parted AS (
    SELECT audit_id, unnest(dissenters) AS program_hash, basis, position, input FROM audit_findings
)
SELECT problem_id, suite_hash, program_hash, any_value(list_contains(solutions, program_hash)) AS is_solution,
       count(DISTINCT position) AS disagreements, any_value(inputs) AS inputs, min(basis) AS basis,
       arg_min(input, position) AS input, audit_id
FROM newest JOIN parted USING (audit_id, program_hash)
GROUP BY problem_id, suite_hash, program_hash, audit_id;

-- Which suite counts where a suite judged: itself, or the newest that accepted findings made of it, and its version?
CREATE OR REPLACE VIEW counting_suites AS
WITH RECURSIVE steps AS (
    SELECT problem_id, parent_suite_hash, suite_hash, version FROM suite_versions
    QUALIFY row_number() OVER (PARTITION BY problem_id, parent_suite_hash ORDER BY arrival DESC) = 1
),
chain AS (
    SELECT problem_id, suite_hash AS judged_by, suite_hash, coalesce(max(version), 1)::BIGINT AS version
    FROM problems LEFT JOIN suite_versions USING (problem_id, suite_hash) GROUP BY problem_id, suite_hash
    UNION
    SELECT chain.problem_id, judged_by, steps.suite_hash, steps.version
    FROM chain JOIN steps ON steps.problem_id = chain.problem_id AND steps.parent_suite_hash = chain.suite_hash
)
SELECT problem_id, judged_by, arg_max(suite_hash, version) AS suite_hash, max(version) AS version
FROM chain
GROUP BY problem_id, judged_by;

-- What is the verdict on each response by the suite that counts now, null until it is judged by it, beside the one given?
CREATE OR REPLACE VIEW rejudged AS
WITH responses AS (
    SELECT 'trajectories' AS found_in, run_id, problem_id, trajectory_id AS response, suite_hash, program_hash,
           normal_hash, verdict, text, arrival
    FROM trajectories ANTI JOIN repeated_trajectories USING (arrival)
    UNION ALL
    SELECT 'eval_samples', run_id, problem_id, policy_id || '/' || sample, suite_hash, program_hash,
           normal_hash, verdict, text, arrival
    FROM eval_samples
),
known AS (
    SELECT program_hash, suite_hash, arg_max(verdict, arrival) AS verdict FROM known_verdicts GROUP BY ALL
)
SELECT found_in, run_id, r.problem_id, response, r.program_hash, r.suite_hash AS judged_by, r.verdict AS verdict_then,
       c.suite_hash, c.version,
       CASE WHEN c.suite_hash = r.suite_hash OR r.verdict <> 'accepted' THEN r.verdict ELSE known.verdict END AS verdict,
       r.normal_hash, r.text, r.arrival
FROM responses r
JOIN counting_suites c ON c.problem_id = r.problem_id AND c.judged_by = r.suite_hash
LEFT JOIN known ON known.program_hash = r.program_hash AND known.suite_hash = c.suite_hash;
