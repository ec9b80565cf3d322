-- name: question
-- Which five training prompts of a run does its reference policy find hardest?
SELECT problem_id, n, k, round(k / n, 3) AS share, round(q_value(k / n, $beta), 3) AS q0
FROM q0 SEMI JOIN (FROM problems WHERE batch_id = $problems AND split = 'train') USING (problem_id, suite_hash)
WHERE reference = $reference AND template_id = $template AND sampling = $sampling
ORDER BY share, problem_id LIMIT 5;
