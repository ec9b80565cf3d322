"""A batch becomes visible exactly once.

protocol         the steps of a commit, and what a crash at each of them leaves
ledger           batch ids that are taken, in SQLite
postgres_ledger  the same in PostgreSQL
intents          files of commits under way
failpoints       where tests let a process die

Reading belongs in `reading`, tables in `schema`. Start reading at `protocol`.
"""
