-- name: totals
-- Which verdicts were given how often, at what cost, and by which versions of the sandbox?
SELECT verdict, sandbox_version, count(*) AS programs, sum(cpu_s) AS cpu_s, quantile_cont(cpu_s, 0.5) AS median_s,
       max(cpu_s) AS most_s, count(*) FILTER (verdict = 'infra') AS infra, min(created_at) AS first,
       max(created_at) AS last, grouping(verdict) = 1 AS of_version
FROM verdicts GROUP BY GROUPING SETS ((verdict), (sandbox_version))
ORDER BY of_version, programs DESC;

-- name: over_time
-- How many programs were judged in each stretch of time, with which verdicts?
SELECT least($stretches - 1, CAST(floor($stretches * (epoch(created_at) - epoch($first::TIMESTAMPTZ))
             / greatest(epoch($last::TIMESTAMPTZ) - epoch($first::TIMESTAMPTZ), 1)) AS BIGINT)) AS stretch,
       min(created_at) AS began, verdict, count(*) AS programs
FROM verdicts
GROUP BY stretch, verdict ORDER BY stretch, verdict;

-- name: slowest
-- Which judgements took the most CPU time?
SELECT program_hash, suite_hash, verdict, cpu_s, memory_bytes, detail FROM verdicts
ORDER BY cpu_s DESC NULLS LAST LIMIT 20;

-- name: problems_of_suites
-- Which problems do these suites judge?
SELECT suite_hash, any_value(problem_id) AS problem_id FROM problems
WHERE suite_hash IN (SELECT unnest($suites)) GROUP BY suite_hash;
