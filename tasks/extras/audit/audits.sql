-- name: suites
-- Which suites can be audited: the newest of each problem that can be judged and that no accepted findings extended?
SELECT p.problem_id, p.suite_hash FROM problems p
ANTI JOIN suite_versions v ON v.problem_id = p.problem_id AND v.parent_suite_hash = p.suite_hash
WHERE p.unjudgeable_reason IS NULL
  AND ($problems IS NULL OR list_contains($problems, p.problem_id))
  AND ($problem_set IS NULL OR p.problem_set = $problem_set)
  AND ($batch IS NULL OR p.batch_id = $batch)
QUALIFY row_number() OVER (PARTITION BY p.problem_id ORDER BY p.arrival DESC) = 1
ORDER BY p.problem_id;

-- name: programs
-- Which different programs passed these suites, those that were written most often first?
SELECT problem_id, suite_hash, normal_hash, arg_min(text, arrival) AS text, count(*) AS times
FROM rejudged
WHERE verdict = 'accepted' AND list_contains($suites, suite_hash) AND normal_hash IS NOT NULL AND text IS NOT NULL
GROUP BY problem_id, suite_hash, normal_hash
QUALIFY row_number() OVER (PARTITION BY problem_id, suite_hash ORDER BY times DESC, normal_hash) <= $most
ORDER BY problem_id, suite_hash, times DESC, normal_hash;

-- name: solutions
-- Which Python programs do the problems' sources give?
SELECT DISTINCT ON (problem_id, solution_id) problem_id, program, claimed, language FROM solutions
WHERE list_contains($problems, problem_id)
ORDER BY problem_id, solution_id, arrival;

-- name: newest
-- What did the newest audit of each of these suites find?
SELECT problem_id, suite_hash, audit_id, len(programs) AS programs, len(solutions) AS solutions, inputs, discarded,
       behaviours, disagreeing, unstable, seconds,
       coalesce((SELECT list(program_hash ORDER BY disagreements DESC, program_hash) FROM survivors s
                 WHERE s.audit_id = a.audit_id), []) AS survivors
FROM audits a
WHERE list_contains($suites, suite_hash) AND list_contains($problems, problem_id)
QUALIFY row_number() OVER (PARTITION BY problem_id, suite_hash ORDER BY arrival DESC) = 1
ORDER BY disagreeing DESC, problem_id;
