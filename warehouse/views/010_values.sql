-- What is the soft value Q_0 (reward units) of a prompt with success probability s?
CREATE OR REPLACE TEMP MACRO q_value(s, beta) AS beta * ln(s + (1 - s) * exp(-1 / beta));
-- How often does the reference policy solve each prompt, over all runs?
CREATE OR REPLACE TEMP VIEW q0 AS
SELECT problem_id, reference, sampling, template_id, suite_hash,
       CAST(sum(n) AS BIGINT) AS n, CAST(sum(k) AS BIGINT) AS k, sum(k) / sum(n) AS s
FROM reference_counts GROUP BY ALL;
