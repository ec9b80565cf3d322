-- name: stored
-- What are the reference log-probabilities of these trajectories under one fingerprint? Of several runs that scored one
-- beside each other, the asking run's own, so that it goes on with what it computed; else those that arrived first. In
-- bfloat16 they differ by what else was in the batch.
SELECT trajectory_id, logprobs FROM reference_logprobs
WHERE fingerprint = ? AND trajectory_id IN (SELECT unnest(?::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY run_id IS DISTINCT FROM ?, arrival) = 1;

-- name: scored_by
-- Of which trajectories has this run stored reference log-probabilities under this fingerprint?
SELECT trajectory_id FROM reference_logprobs WHERE fingerprint = ? AND run_id = ?;
