-- name: context
-- What are the problem, prompt and pi_0 of this response? Everything on its page is told of one pi_0: that of its newest
-- search; else the policy that wrote it, if that wrote it as pi_0, or the parent of that policy; else the newest that the
-- problem was sampled from.
SELECT (SELECT arg_max(title, arrival) FROM problems WHERE problem_id = $problem) AS title,
       (SELECT any_value(token_ids) FROM prompts WHERE prompt_id = $prompt) AS prompt_ids,
       (SELECT any_value(text) FROM prompts WHERE prompt_id = $prompt) AS prompt,
       coalesce(
           (SELECT arg_max(reference, arrival) FROM token_values
            WHERE trajectory_id = $id AND starts_with(search_id, 'annotation/')),
           CASE WHEN $source IN ('reference', 'pivotal_rollout') THEN $policy END,
           (SELECT coalesce(arg_max(parent_policy_id, arrival), any_value(policy_id) FILTER (kind = 'reference'))
            FROM policies WHERE policy_id = $policy),
           (SELECT arg_max(reference, arrival) FROM reference_counts WHERE problem_id = $problem),
           (SELECT any_value(policy_id) FROM policies WHERE policy_id = $policy)
       ) AS reference;

-- name: counts
-- How often did this reference policy solve the trajectory's prompt, with the tests that judged it and its limit of
-- length, or with that of the newest counts where there are none of it?
WITH counted AS (
    SELECT sampling, n, k, arrival FROM reference_counts
    WHERE problem_id = $problem AND suite_hash = $suite AND reference = $reference
      AND ($prompt IS NULL OR prompt_id IS NULL OR prompt_id = $prompt)
)
SELECT CAST(coalesce(sum(n), 0) AS BIGINT) AS n, CAST(coalesce(sum(k), 0) AS BIGINT) AS k FROM counted
WHERE sampling = (SELECT arg_max(sampling, (sampling = $sampling, arrival)) FROM counted);

-- name: corpus
-- What did the run's newest corpus stage return?
SELECT manifest_json AS manifest FROM stages WHERE stage = 'corpus' AND run_id = $run ORDER BY arrival DESC LIMIT 1;

-- name: estimates
-- What did the newest search of this trajectory find at each position?
SELECT position, n, k, coalesce(pivotal, false) AS pivotal FROM token_values
WHERE trajectory_id = $id AND position > 0 AND search_id = (
    SELECT arg_max(search_id, arrival) FROM token_values
    WHERE trajectory_id = $id AND starts_with(search_id, 'annotation/')
)
ORDER BY position;

-- name: reference_logprobs
-- What log-probability does this pi_0 give each of its tokens? A fingerprint does not say whose it is, so: what runs of
-- this pi_0 computed, by the fingerprint that each began with (a run whose reference is refreshed goes on with others).
WITH scored AS (
    SELECT trajectory_id, run_id, fingerprint, logprobs, arrival FROM reference_logprobs
    WHERE run_id IN (SELECT run_id FROM stages
                     WHERE stage = 'prepare' AND json_extract_string(manifest_json, '$.policy_id') = $reference)
)
SELECT logprobs FROM scored
WHERE trajectory_id = $id AND fingerprint IN (SELECT arg_min(fingerprint, arrival) FROM scored GROUP BY run_id)
ORDER BY arrival LIMIT 1;

-- name: folders
-- Where are the checkpoints of these policies?
SELECT policy_id, arg_min(path, arrival) AS path, any_value(kind) AS kind FROM policies
WHERE policy_id IN (SELECT unnest($policies)) GROUP BY policy_id;

-- name: policies
-- Which policies were trained from this reference policy, the newest first?
SELECT policy_id, arg_max(run_id, arrival) AS run_id, arg_max(step, arrival) AS step,
       arg_max(kind, arrival) AS kind FROM policies
WHERE kind <> 'reference' AND parent_policy_id = $reference
GROUP BY policy_id ORDER BY max(arrival) DESC LIMIT 40;

-- name: uses
-- In which runs and at which optimizer steps was this trajectory trained on?
SELECT run_id, step, count(*) AS times FROM resident.uses WHERE response = hash($id)
GROUP BY run_id, step ORDER BY run_id, step LIMIT 200;

-- name: verdict
-- What did the sandbox say of its program?
SELECT verdict, tests_passed, tests_total, cpu_s, memory_bytes, detail, outcomes, output, sandbox_version FROM verdicts
WHERE program_hash = $program AND suite_hash = $suite ORDER BY arrival DESC LIMIT 1;

-- name: test
-- What does this test of the suite say?
SELECT any_value(input) AS input, any_value(expected) AS expected FROM tests
WHERE suite_hash = $suite AND position = $position;

-- name: searched
-- Which trajectories were searched for pivotal tokens, and what did the newest search of each find?
WITH newest AS (
    SELECT trajectory_id, position, pivotal FROM token_values
    WHERE starts_with(search_id, 'annotation/') AND position > 0
    QUALIFY search_id = first_value(search_id) OVER (PARTITION BY trajectory_id ORDER BY arrival DESC)
)
SELECT trajectory_id, count(DISTINCT position) AS estimated, count(DISTINCT position) FILTER (pivotal) AS pivotal
FROM newest
GROUP BY trajectory_id ORDER BY pivotal DESC, estimated DESC, trajectory_id LIMIT 200;
