-- What is the soft value of a prompt with success rate s at temperature beta, in nats (y = Q / beta)?
CREATE OR REPLACE MACRO soft_value(s, beta) AS ln(s + (1 - s) * exp(-1 / beta));
-- What is the soft value Q of a prompt with success rate s at temperature beta, in reward units?
CREATE OR REPLACE MACRO q_value(s, beta) AS beta * ln(s + (1 - s) * exp(-1 / beta));
-- How often did the reference policy solve each prompt, over all runs (n samples, k correct, s = k / n)?
CREATE OR REPLACE VIEW q0 AS
SELECT problem_id, reference, sampling, template_id, suite_hash,
       CAST(sum(n) AS BIGINT) AS n, CAST(sum(k) AS BIGINT) AS k, sum(k) / sum(n) AS s
FROM reference_counts GROUP BY ALL;
