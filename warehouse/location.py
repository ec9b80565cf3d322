"""Where a warehouse lies: its catalog (SQLite in a folder, or PostgreSQL) and its data (a folder, or an S3 bucket).

A location is one string, so that one setting moves a warehouse:

    ./.spo/warehouse                                             SQLite catalog and Parquet in one folder
    ./.spo/warehouse?data=s3://bucket/prefix                     SQLite catalog in a folder, Parquet in a bucket
    postgresql://user@host/database?data=/shared/folder          PostgreSQL catalog, Parquet in a shared folder
    postgresql://user@host/database?schema=x&data=s3://bucket/x  PostgreSQL catalog (schema x), Parquet in a bucket

A password may stand in the location, or in PGPASSWORD, or in libpq's password file; it is never
shown or written down. S3 credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION
and AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from warehouse.errors import UnsafeStorage, WarehouseError

DEFAULT: Final = "./.spo/warehouse"
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "afs", "ocfs2", "gfs2"}
    | {"orangefs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"}
)


@dataclass(frozen=True, slots=True)
class Location:
    """A location in its parts. With a SQLite catalog `folder` is set, else `postgres`, an address without password."""

    folder: Path | None
    postgres: str
    """Empty for a SQLite catalog."""
    schema: str
    data: str
    """Absolute folder or s3:// address of the Parquet files, ending in a slash."""
    password: str | None = field(default=None, repr=False)
    """Password of `postgres` when the location held one."""

    @property
    def remote(self) -> bool:
        """True when the data lie in an object store."""
        return self.data.startswith("s3://")

    def __str__(self) -> str:
        """The location that `parse_location` reads back, without the password."""
        if not self.postgres:
            usual = _data(f"{self.folder}/data")
            return (
                str(self.folder) if self.data == usual else f"{self.folder}?{urlencode({'data': self.data}, safe='/:')}"
            )
        own = urlencode({"schema": self.schema, "data": self.data}, safe="/:")
        return f"{self.postgres}{'&' if '?' in self.postgres else '?'}{own}"

    def credentials(self) -> dict[str, str]:
        """The environment variables that a process needs beside the location to open it."""
        return {} if self.password is None else {"PGPASSWORD": self.password}


def parse_location(text: str | Path | None) -> Location:
    """The location that `text` (None: $SPO_WAREHOUSE, else ./.spo/warehouse) describes; raises WarehouseError."""
    text = os.fspath(text) if text is not None else os.environ.get("SPO_WAREHOUSE") or DEFAULT
    if text.startswith(("postgresql://", "postgres://")):
        return _postgres(text)
    path, mark, query = text.partition("?")
    settings = _settings(query, {"data"}, text)
    if mark and not settings:
        raise WarehouseError(
            f"no setting follows the '?' in the location {text!r}: a folder's name cannot have one", code="NoSetting"
        )
    folder = Path(path).expanduser().resolve()
    return Location(folder, "", "main", _data(settings.get("data") or str(folder / "data")))


def _postgres(text: str) -> Location:
    parts = urlsplit(text)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, secret = user.partition(":")
    server = f"postgresql://{name}{at}{host}{parts.path}"
    settings = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    password = settings.pop("password", unquote(secret) if colon else None)
    data = settings.pop("data", None)
    schema = settings.pop("schema", "spo")
    if data is None:
        raise WarehouseError(
            f"the location {server!r} names no place for the data: add ?data=/shared/folder or ?data=s3://bucket/prefix",
            code="NoPlaceForData",
        )
    if "://" not in data and not Path(data).expanduser().is_absolute():
        raise WarehouseError(
            f"the location {server!r} names the folder {data!r} from where a command happens to run: workers run "
            f"elsewhere, so name it whole, data={Path(data).resolve()}",
            code="RelativeFolder",
        )
    if not schema.isidentifier():
        raise WarehouseError(f"the schema {schema!r} of {server!r} is not a plain name", code="InvalidSchema")
    address = f"{server}?{urlencode(settings)}" if settings else server
    return Location(None, address, schema, _data(data), password)


def _settings(query: str, known: set[str], text: str) -> dict[str, str]:
    settings = {name: values[-1] for name, values in parse_qs(query).items()}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise WarehouseError(
            f"the location {text!r} has an unknown setting {unknown[0]!r}; known: {sorted(known)}",
            code="UnknownSetting",
        )
    return settings


def _data(text: str) -> str:
    if text.startswith("s3://"):
        return text.rstrip("/") + "/"
    if "://" in text:
        raise WarehouseError(
            f"data can lie in a folder or at s3://bucket/prefix, not at {text!r}", code="UnknownStorage"
        )
    return str(Path(text).expanduser().resolve()) + "/"


def refuse_network_folder(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Raise UnsafeStorage when `folder` lies on a network file system (as far as the system tells)."""
    if not mounts.is_file():
        return
    kind = file_system(folder, mounts.read_text(encoding="utf-8", errors="replace"))
    if kind in NETWORK_FILE_SYSTEMS:
        raise UnsafeStorage(
            f"{folder} is on a network file system ({kind}), where SQLite's locks do not hold. Use a local folder, or "
            f"a PostgreSQL catalog with the data there: postgresql://user@host/database?data={folder}/data"
        )


def file_system(folder: Path, mountinfo: str) -> str:
    """The type of the file system that holds `folder`, from the text of /proc/self/mountinfo; '' when unknown."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda escaped: chr(int(escaped[1], 8)), fields[4])
        if (folder == Path(point) or Path(point) in folder.parents) and len(point) >= best:
            best, kind = len(point), right.split()[0]
    return kind
