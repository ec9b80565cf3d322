-- name: question
-- Which five training prompts of a run does its reference policy find hardest?
SELECT problem_id, sum(n) AS n, sum(k) AS k, round(sum(k) / sum(n), 3) AS share,
       round(q_value(sum(k) / sum(n), $beta), 3) AS q0
FROM q0 SEMI JOIN (FROM problems WHERE batch_id = $problems AND split = 'train') USING (problem_id, suite_hash)
WHERE reference = $reference AND template_id = $template AND sampling = $sampling
  AND (prompt_id IS NULL OR prompt_id IN (SELECT prompt_id FROM prompts WHERE batch_id = $prompts))
GROUP BY problem_id
ORDER BY share, problem_id LIMIT 5;
