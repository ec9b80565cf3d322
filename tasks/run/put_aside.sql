-- name: put_aside
-- Which batches whose ids begin so are in quarantine, and not because another batch stands for them?
SELECT DISTINCT bad_batch_id AS batch FROM quarantine
WHERE NOT starts_with(reason, $superseded)
  AND EXISTS (FROM unnest($prefixes::VARCHAR[]) AS wanted(prefix) WHERE starts_with(bad_batch_id, prefix))
ORDER BY batch;
