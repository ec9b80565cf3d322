"""Upkeep: keeps a warehouse small and sound.

maintenance            compaction, and files that nothing names
background_compaction  the same beside a run
verification           `spo verify`: files, hashes, ledger and catalog agree
migrations             columns that a newer version adds
ownership              one warehouse for each data folder

Start reading at `maintenance`.
"""
