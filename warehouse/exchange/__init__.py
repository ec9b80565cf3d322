"""Rows on their way out of a warehouse and into another.

exporting             tables as Parquet, JSON lines or a data set of Hugging Face
importing_files       the way back
importing_warehouses  another warehouse, batch by batch
parquet_rows, zip_members
                      reading files of others

Rollouts of other programs belong in `tasks/extras/importing`. Start reading at `exporting`.
"""
