-- name: suspects
-- Which failed responses may an older version of the sandbox have judged wrongly, or for another program than is found in
-- them today, and in which batches are they?
-- `waits`: online responses of a run whose training has begun and not ended, which follows what is appended.
WITH training AS (
    SELECT run_id FROM run_events WHERE kind = 'begun'
    EXCEPT
    SELECT run_id FROM stages WHERE stage = 'train' AND status IN ('completed', 'skipped')
),
responses AS (
    SELECT batch_id, run_id, suite_hash, verdict, tests_passed, text, source = 'online' AS followed FROM trajectories
    UNION ALL
    SELECT batch_id, run_id, suite_hash, verdict, NULL, text, false FROM eval_samples
)
SELECT suite_hash, verdict, tests_passed, text, followed AND run_id IN (FROM training) AS waits,
       count(*) AS responses, list_sort(list(DISTINCT batch_id)) AS batches
FROM responses
WHERE text IS NOT NULL AND suite_hash IS NOT NULL
  AND (list_contains($verdicts, verdict)
       OR (verdict = 'wrong_answer' AND regexp_matches(text, $last_words))
       OR (list_contains($others, verdict)
           AND (regexp_matches(text, $fences)
                OR suite_hash IN (SELECT suite_hash FROM problems WHERE style = 'function'))))
GROUP BY ALL
ORDER BY ALL;

-- name: sound
-- Which programs were judged by a version that judges these as today's does, and to the very end of their output? None that
-- may import packages: where it could not read their folder, an older version failed them.
WITH found AS (
    SELECT suite_hash, bool_or(style = 'stdin') AS stdin, bool_or(json_exists(checker_json, '$.packages')) AS packages
    FROM problems WHERE suite_hash IN (SELECT unnest($suites::VARCHAR[])) GROUP BY suite_hash
)
SELECT program_hash, suite_hash, verdict, tests_passed,
       bool_or(list_contains($but_packages || $but_modules, sandbox_version)) AS to_the_end,
       bool_or(list_contains($but_objects, sandbox_version)) AS but_objects
FROM verdicts JOIN found USING (suite_hash)
WHERE NOT packages
  AND (list_contains($versions, sandbox_version) AND stdin
       OR list_contains($but_packages || $but_modules || $but_objects, sandbox_version))
GROUP BY ALL;

-- name: holders
-- Which of these batches have rows in a table?
SELECT DISTINCT batch_id FROM {table} WHERE batch_id IN (SELECT unnest(?::VARCHAR[]));

-- name: contents
-- What does a batch hold in one of its tables?
SELECT * FROM {table} WHERE batch_id = ? ORDER BY arrival;

-- name: elsewhere
-- Which responses of this batch are in another one, too, with a verdict of the same tests?
SELECT DISTINCT trajectory_id FROM trajectories
WHERE batch_id <> $batch AND reward IS NOT NULL
  AND (trajectory_id, suite_hash) IN (SELECT trajectory_id, suite_hash FROM trajectories WHERE batch_id = $batch);
