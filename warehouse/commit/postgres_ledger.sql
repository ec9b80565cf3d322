-- name: tables
-- What is remembered beside the catalog: single values, committed batches, waiting and refused intents, lock holders.
CREATE TABLE IF NOT EXISTS {s}.warehouse_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS {s}.warehouse_batches (
    batch_id TEXT COLLATE "C" PRIMARY KEY, run_id TEXT NOT NULL, snapshot BIGINT NOT NULL, files TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS warehouse_batches_of_runs ON {s}.warehouse_batches (run_id, snapshot);
CREATE INDEX IF NOT EXISTS warehouse_batches_by_snapshot ON {s}.warehouse_batches (snapshot);
CREATE TABLE IF NOT EXISTS {s}.warehouse_intents (key TEXT COLLATE "C" PRIMARY KEY, intent TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS {s}.warehouse_refused (key TEXT PRIMARY KEY, intent TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS {s}.warehouse_holders (name TEXT PRIMARY KEY, holder TEXT NOT NULL);

-- name: put
-- Remember a single value in the place of an earlier one.
INSERT INTO {s}.warehouse_meta VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value;

-- name: offer_again
-- Let a refused attempt wait again.
INSERT INTO {s}.warehouse_intents SELECT key, intent FROM {s}.warehouse_refused WHERE key = %s ON CONFLICT DO NOTHING;

-- name: name_holder
-- Remember who holds a lock, for the message of whoever waits for it.
INSERT INTO {s}.warehouse_holders VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET holder = EXCLUDED.holder;

-- name: all_batches
-- Which batches are committed, those of earlier snapshots first?
SELECT batch_id, run_id, snapshot, files FROM {s}.warehouse_batches ORDER BY snapshot, batch_id;

-- name: batches_of
-- Which batches of this run were committed after a snapshot, the earlier ones first?
SELECT batch_id, run_id, snapshot, files FROM {s}.warehouse_batches
WHERE run_id = %s AND snapshot > %s ORDER BY snapshot, batch_id;

-- name: newest_in
-- Which is the newest snapshot after a given one whose batches have rows in this table?
SELECT max(snapshot) FROM {s}.warehouse_batches WHERE snapshot > %s AND files LIKE %s;
