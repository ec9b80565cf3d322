-- name: suite_versions
-- Which tests were added to which by accepted findings of audits, the first of each coming first?
SELECT problem_id, parent_tests_hash, added FROM suite_versions
WHERE $pin IS NULL OR snapshot_id <= $pin
ORDER BY arrival;
