-- name: beginning_so
-- Which policies have an id that begins so?
SELECT DISTINCT policy_id FROM policies WHERE starts_with(policy_id, $id) LIMIT 20;
