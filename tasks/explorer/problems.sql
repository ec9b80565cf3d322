-- name: problems
-- How hard is each problem for pi_0, how often do its policies solve it now, and what was found? pi_0 as each was last asked and judged.
WITH known AS (
    SELECT problem_id, arg_max(title, arrival) AS title, arg_max(problem_set, arrival) AS problem_set,
           arg_max(split, arrival) AS split
    FROM problems GROUP BY problem_id
),
of_pi_0 AS (
    FROM reference_counts WHERE reference = (SELECT arg_max(reference, arrival) FROM reference_counts)
),
newest AS (
    SELECT problem_id, sampling, template_id, suite_hash, prompt_id FROM of_pi_0
    QUALIFY row_number() OVER (PARTITION BY problem_id ORDER BY arrival DESC) = 1
),
counted AS (
    SELECT problem_id, CAST(sum(n) AS BIGINT) AS n, CAST(sum(k) AS BIGINT) AS k
    FROM of_pi_0 JOIN newest USING (problem_id, sampling, template_id, suite_hash)
    WHERE of_pi_0.prompt_id IS NULL OR of_pi_0.prompt_id = newest.prompt_id
    GROUP BY problem_id
)
SELECT known.*, coalesce(responses, 0) AS responses, counted.n, counted.k, counted.k / counted.n AS s,
       later_n AS n1, later_k AS k1, later_k / nullif(later_n, 0) AS later, coalesce(programs, 0) AS programs,
       coalesce(correct, 0) AS correct, coalesce(found_by_training, 0) AS found_by_training
FROM known LEFT JOIN resident.by_problem USING (problem_id) LEFT JOIN counted USING (problem_id);

-- name: policies
-- How often did each policy solve each problem (the scored samples of evaluations and of training)?
SELECT problem_id, policy, source, count(reward) AS n, count(*) FILTER (reward = 0) AS k, max(step) AS step
FROM resident.answers_to($problems, '')
WHERE policy IS NOT NULL AND source <> 'pivotal_rollout'
  AND author <> 'other model'
GROUP BY ALL;
