-- name: counted_before
-- Which of these responses of pi_0 are in another batch already?
SELECT DISTINCT trajectory_id FROM trajectories
WHERE policy_start = $reference AND batch_id <> $batch AND list_contains($ids, trajectory_id);
