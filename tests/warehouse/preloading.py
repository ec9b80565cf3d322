"""Imported by the fork server alone: what every process that is to die would else do again.

Importing the warehouse and checking the signatures of DuckDB's extensions takes ten times as long as a commit.
"""

from __future__ import annotations

from warehouse import ExtensionMissing, lake

for name in ("ducklake", "sqlite_scanner", "postgres_scanner", "httpfs"):
    try:
        lake.checked_extension(lake.extension_file(name))
    except ExtensionMissing:
        continue  # the tests that need it say so
