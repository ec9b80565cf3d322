-- name: rewards
-- Which verdict and reward do these trajectories have?
SELECT trajectory_id, verdict, reward FROM trajectories WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY arrival DESC) = 1;
