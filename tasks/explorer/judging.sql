-- name: over_time
-- How many programs were judged in each stretch of time, with which verdicts?
WITH span AS (SELECT min(created_at) AS first, max(created_at) AS last FROM verdicts)
SELECT least($stretches - 1, CAST(floor($stretches * (epoch(created_at) - epoch(first))
             / greatest(epoch(last) - epoch(first), 1)) AS BIGINT)) AS stretch,
       min(created_at) AS began, verdict, count(*) AS programs, sum(cpu_s) AS cpu_s
FROM verdicts, span
GROUP BY stretch, verdict ORDER BY stretch, verdict;

-- name: by_verdict
-- Which verdicts were given how often, and what did judging cost?
SELECT verdict, count(*) AS programs, sum(cpu_s) AS cpu_s, quantile_cont(cpu_s, 0.5) AS median_s, max(cpu_s) AS most_s,
       max(memory_bytes) AS most_memory
FROM verdicts GROUP BY verdict ORDER BY programs DESC;

-- name: by_version
-- Which versions of the sandbox judged how much, and how often did they themselves fail?
SELECT sandbox_version, count(*) AS programs, count(*) FILTER (verdict = 'infra') AS infra, min(created_at) AS first,
       max(created_at) AS last
FROM verdicts GROUP BY sandbox_version ORDER BY last DESC;

-- name: slowest
-- Which judgements took the most CPU time?
SELECT program_hash, suite_hash, verdict, cpu_s, memory_bytes, detail, run_id, created_at FROM verdicts
ORDER BY cpu_s DESC NULLS LAST LIMIT 20;

-- name: problems_of_suites
-- Which problems do these suites judge?
SELECT suite_hash, any_value(problem_id) AS problem_id FROM problems
WHERE suite_hash IN (SELECT unnest($suites)) GROUP BY suite_hash;
