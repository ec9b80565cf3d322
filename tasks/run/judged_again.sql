-- name: any
-- Has any batch been put in another one's place since its responses were judged again?
SELECT count(*) FROM quarantine WHERE contains(reason, $mark);

-- name: batches
-- Which batches hold responses for these suites that were judged again?
SELECT count(DISTINCT batch_id) AS n, CAST(bit_xor(hash(batch_id)) AS VARCHAR) AS content
FROM (
    SELECT DISTINCT batch_id FROM trajectories
    WHERE contains(batch_id, $mark) AND suite_hash IN (SELECT unnest($suite_hashes::VARCHAR[]))
    UNION
    SELECT DISTINCT batch_id FROM eval_samples
    WHERE contains(batch_id, $mark) AND suite_hash IN (SELECT unnest($suite_hashes::VARCHAR[]))
);
