-- name: imported
-- Is there any response of these sources?
SELECT EXISTS (SELECT 1 FROM trajectories WHERE source IN (SELECT unnest(?::VARCHAR[])));
