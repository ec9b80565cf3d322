"""Questions to a warehouse that goes on growing.

readers           `warehouse.open()`: SELECT statements, at a snapshot or now
resident          a copy of the large tables in memory, for the pages
following, new_rows
                  rows that became visible since, exactly once
without_pandas    DuckDB without its slow imports

Appending belongs in `commit`. Start reading at `readers`.
"""
