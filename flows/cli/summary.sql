-- name: question
-- Which five training prompts does the reference policy find hardest?
SELECT problem_id, n, k, round(k / n, 3) AS share, round(q_value(k / n, 1 / ln(100000)), 3) AS q0
FROM q0 ORDER BY share LIMIT 5;
