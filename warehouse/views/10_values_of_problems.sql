-- Which batches hold other batches' responses with newer verdicts, and when did those responses arrive first (snapshot, and
-- place of their first row in `trajectories`)?
CREATE OR REPLACE VIEW judged_again AS
WITH RECURSIVE replacing AS (
    SELECT batch_id, bad_batch_id AS earlier FROM quarantine
    WHERE contains(batch_id, '/rejudged-') AND starts_with(reason, 'superseded')
    UNION
    SELECT replacing.batch_id, bad_batch_id
    FROM replacing JOIN quarantine ON quarantine.batch_id = earlier AND contains(earlier, '/rejudged-')
),
there AS (
    SELECT batch_id, snapshot_id, rowid AS arrival FROM stored.trajectories
    UNION ALL
    SELECT batch_id, snapshot_id, NULL FROM stored.eval_samples
)
SELECT replacing.batch_id, min(there.snapshot_id) AS snapshot_id, min(there.arrival) AS arrival
FROM replacing JOIN there ON there.batch_id = earlier
GROUP BY replacing.batch_id;

-- Which rows of `trajectories` say again what an earlier, or a scored, one says: the same response (of runs
-- that drew side by side, or imported), judged by the same tests?
CREATE OR REPLACE VIEW repeated_trajectories AS
SELECT arrival, trajectory_id, suite_hash, batch_id FROM trajectories
WHERE hash(trajectory_id, suite_hash) IN (
    SELECT response FROM (SELECT hash(trajectory_id, suite_hash) AS response FROM trajectories)
    GROUP BY response HAVING count(*) > 1
)
QUALIFY row_number() OVER (PARTITION BY trajectory_id, suite_hash ORDER BY reward IS NULL, arrival) > 1;

-- How often does each policy solve each problem by each suite, over all its different responses (rate with a 95% Jeffreys
-- interval; what lies in several batches counts once, a reward that an import believed not at all)?
CREATE OR REPLACE VIEW pass_rate_by_problem AS
SELECT problem_id, suite_hash, source, policy_start AS policy, temperature, n, k, k / nullif(n, 0) AS rate,
       rate_lower(n, k) AS rate_lower, rate_upper(n, k) AS rate_upper, unscored
FROM (
    SELECT problem_id, suite_hash, source, policy_start, temperature, count(reward) AS n,
           count(*) FILTER (reward = 0) AS k, count(*) FILTER (reward IS NULL) AS unscored
    FROM trajectories ANTI JOIN repeated_trajectories USING (arrival)
    WHERE verdict IS DISTINCT FROM 'claimed'
    GROUP BY ALL
);

-- How often did the reference policy solve each prompt, over all runs (s = k / n with a 95% Jeffreys interval), a row for
-- each prompt, way of sampling and suite?
CREATE OR REPLACE VIEW q0 AS
SELECT problem_id, reference, sampling, template_id, suite_hash, prompt_id, n, k, k / nullif(n, 0) AS s,
       rate_lower(n, k) AS s_lower, rate_upper(n, k) AS s_upper
FROM (
    SELECT problem_id, reference, sampling, template_id, suite_hash, prompt_id,
           CAST(sum(reference_counts.n) AS BIGINT) AS n, CAST(sum(reference_counts.k) AS BIGINT) AS k
    FROM reference_counts
    GROUP BY ALL
);

-- How many different correct programs did each policy write for each problem, in how many correct responses (each once, in
-- however many batches it lies)?
CREATE OR REPLACE VIEW distinct_correct_programs AS
WITH correct AS (
    SELECT policy_start AS policy, problem_id, normal_hash, hash(trajectory_id) AS response
    FROM trajectories WHERE reward = 0 AND verdict IS DISTINCT FROM 'claimed'
    UNION ALL
    SELECT policy_id, problem_id, normal_hash, hash(policy_id, problem_id, prompt_id, sampling, sample, seed)
    FROM eval_samples WHERE reward = 0
)
SELECT policy, problem_id, count(DISTINCT response) AS correct, count(DISTINCT normal_hash) AS programs
FROM correct
GROUP BY policy, problem_id;

-- Which correct programs did training find that neither the reference policy nor a person nor another model had written?
CREATE OR REPLACE VIEW new_solutions AS
WITH written AS (
    SELECT *, source IN ('reference', 'pivotal_rollout', 'human', 'other_model')
              OR coalesce(policy_start IN (SELECT policy_id FROM policies WHERE kind = 'reference'), false) AS given
    FROM trajectories
),
found AS (
    SELECT problem_id, normal_hash, source, policy_start AS policy, run_id, created_at, trajectory_id, text,
           (coalesce(judged_again.arrival, written.arrival), written.arrival) AS arrival
    FROM written LEFT JOIN judged_again USING (batch_id)
    WHERE reward = 0 AND verdict IS DISTINCT FROM 'claimed' AND NOT given
),
known AS (
    SELECT problem_id, normal_hash FROM written WHERE given
    UNION
    SELECT problem_id, normal_hash FROM eval_samples
    WHERE policy_id IN (SELECT policy_id FROM policies WHERE kind = 'reference')
       OR policy_id NOT IN (SELECT policy_id FROM policies WHERE kind IN ('snapshot', 'final'))
)
SELECT problem_id, normal_hash, count(DISTINCT trajectory_id) AS times, arg_min(created_at, arrival) AS first_at,
       arg_min(run_id, arrival) AS first_run, arg_min(policy, arrival) AS first_policy,
       arg_min(trajectory_id, arrival) AS trajectory_id, arg_min(text, arrival) AS text
FROM found
ANTI JOIN known USING (problem_id, normal_hash)
GROUP BY problem_id, normal_hash;
