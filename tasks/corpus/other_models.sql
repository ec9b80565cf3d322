-- name: answered
-- Which answers of another model are there? Not those that end with another token than they should, nor those that were
-- too long for a limit smaller than this run's.
SELECT DISTINCT problem_id, seed FROM trajectories
WHERE engine = ?
  AND prompt_id IN (SELECT unnest(?::VARCHAR[])) AND suite_hash IN (SELECT unnest(?::VARCHAR[]))
  AND (?::INTEGER IS NULL OR finish_reason = 'length' OR token_ids[-1] = ?)
  AND (verdict IS DISTINCT FROM 'too_long' OR max_response_tokens >= ?);
