"""What can go wrong in the warehouse.

WarehouseError
├── InvalidRows        rows do not fit their table (names table, row and field); nothing was written
├── UnknownTable       no such table
├── UnknownSnapshot    no such snapshot yet (names those there are)
├── UnknownQuery       no query of that name in the module's .sql file
├── NewerSchema        the warehouse was written by a newer version of this project
├── WarehouseBusy      a lock was not free in time (names the holder)
├── WarehouseMissing   nothing is at this location (read-only opening never creates)
├── NotWritable        this user may not write there, or the file system is mounted read-only
├── StorageFull        the disk or quota is full; the batch was not acknowledged
├── StorageLost        data files or the object store cannot be reached; the batch was not acknowledged
├── BadQuestion        what a reader asked is no single SELECT statement, or DuckDB refuses it
├── TookTooLong        a reader's question was stopped at its time limit
├── StillReading       the readers' copy of the responses is not complete yet
├── UnsafeStorage      a SQLite catalog on a network file system
└── ExtensionMissing   a DuckDB extension is not installed
"""


class WarehouseError(Exception):
    """Anything that the warehouse refuses; the message says what to do.

    `code`: a stable name of the fault, for programs and tests; the name of the class where none is given.
    """

    def __init__(self, *message: object, code: str = "") -> None:
        super().__init__(*message)
        self.code = code or type(self).__name__


class InvalidRows(WarehouseError):
    """Rows do not fit their table; the message names table, row number (from 0) and field."""


class UnknownTable(WarehouseError):
    """There is no table of that name."""


class UnknownSnapshot(WarehouseError):
    """There is no snapshot of that number; the message names the first and the newest."""


class UnknownQuery(WarehouseError):
    """There is no query of that name in the module's .sql file, or the file cannot be read as queries."""


class NewerSchema(WarehouseError):
    """The warehouse was written by a newer version of this project."""


class WarehouseBusy(WarehouseError):
    """A lock was not free in time; the message names its holder."""


class WarehouseMissing(WarehouseError):
    """There is no warehouse at this location."""


class NotWritable(WarehouseError):
    """This user may not write where the warehouse lies, or its file system is mounted read-only."""


class StorageFull(WarehouseError):
    """No space is left; the batch was not acknowledged."""


class StorageLost(WarehouseError):
    """The storage cannot be reached; the batch was not acknowledged."""


class BadQuestion(WarehouseError):
    """What a reader asked is no single SELECT statement, or DuckDB refuses it; the message is DuckDB's."""


class TookTooLong(WarehouseError):
    """A reader's question was stopped at its time limit."""


class StillReading(WarehouseError):
    """The readers' copy of the responses is not complete yet; ask again in a moment."""


class UnsafeStorage(WarehouseError):
    """A SQLite catalog lies on a network file system, where its locks do not hold."""


class ExtensionMissing(WarehouseError):
    """A DuckDB extension that this location needs is not installed."""
