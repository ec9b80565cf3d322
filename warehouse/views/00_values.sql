-- What is the soft value of a prompt with success rate s at temperature beta, in nats (y = Q / beta)?
CREATE OR REPLACE MACRO soft_value(s, beta) AS ln(s + (1 - s) * exp(-1 / beta));

-- What is the soft value Q of a prompt with success rate s at temperature beta, in reward units?
CREATE OR REPLACE MACRO q_value(s, beta) AS beta * ln(s + (1 - s) * exp(-1 / beta));

-- How likely is at least one success among k of n samples of which c are correct (unbiased, exact; null when n < k)?
CREATE OR REPLACE MACRO pass_at(n, c, k) AS
    CASE WHEN n < k THEN NULL
         WHEN n - c < k THEN 1.0
         WHEN c = 0 THEN 0.0
         ELSE 1 - list_product(list_transform(range(n - c + 1, n + 1), lambda i: 1 - k / i))
    END;

-- (internal) The continued fraction of the incomplete beta function, from its last step to its first.
CREATE OR REPLACE MACRO beta_fraction(x, a, b) AS
    list_reduce(CAST(range(20 + 2 * CAST(ceil(sqrt(greatest(a, b))) AS BIGINT), 0, -1) AS DOUBLE[]), lambda f, i: 1 + CASE
        WHEN i % 2 = 1 THEN -(a + floor(i / 2)) * (a + b + floor(i / 2)) * x / ((a + i - 1) * (a + i))
        ELSE i / 2 * (b - i / 2) * x / ((a + i - 1) * (a + i))
    END / f, CAST(1 AS DOUBLE));

-- (internal) The incomplete beta function where its continued fraction converges fast.
CREATE OR REPLACE MACRO beta_tail(x, a, b) AS
    exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * ln(x) + b * ln(1 - x)) / a / beta_fraction(x, a, b);

-- With which probability is a Beta(a, b) variable at most x (0 < x < 1)?
CREATE OR REPLACE MACRO beta_cdf(x, a, b) AS
    CASE WHEN x < (a + 1) / (a + b + 2) THEN beta_tail(x, a, b) ELSE 1 - beta_tail(1 - x, b, a) END;

-- (internal) Newton's method for the value below which a Beta(a, b) variable is with probability p; z is p's normal quantile.
CREATE OR REPLACE MACRO beta_quantile(p, z, a, b) AS
    list_reduce(CAST(range(9) AS DOUBLE[]),
        lambda y, j: least(greatest(
            y - (beta_cdf(y, a, b) - p)
                / exp(lgamma(a + b) - lgamma(a) - lgamma(b) + (a - 1) * ln(y) + (b - 1) * ln(1 - y)),
            y / 8, 1e-12), 1 - (1 - y) / 8, 1 - 1e-12),
        CASE WHEN a < 1 THEN 2.5 / (b + 2.5) WHEN b < 1 THEN a / (a + 2.5)
             ELSE 1 / (1 + b / a * exp(-z * sqrt(1 / a + 1 / b))) END);

-- Where does the 95% Jeffreys interval of a success rate begin, after k successes in n samples?
CREATE OR REPLACE MACRO rate_lower(n, k) AS
    CASE WHEN k = 0 THEN 0.0 ELSE beta_quantile(0.025, -1.959963984540054, k + 0.5, n - k + 0.5) END;

-- Where does the 95% Jeffreys interval of a success rate end, after k successes in n samples?
CREATE OR REPLACE MACRO rate_upper(n, k) AS
    CASE WHEN k = n THEN 1.0 ELSE beta_quantile(0.975, 1.959963984540054, k + 0.5, n - k + 0.5) END;
