"""Members of zip files that other programs wrote, also of those compressed by Zstandard (method 93)."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from warehouse.errors import InvalidRows

ZSTANDARD = 93
_HEADER = struct.Struct("<4s5H3L2H")
"""A member's own header; its last two fields are the lengths of the name and of what else stands before the content."""
_MOST_BYTES = 1 << 30
"""Of a member: more is refused, so that a small file cannot fill the memory."""


def zip_members(path: Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of every member below `prefix`, by name. Raises InvalidRows (names the file)."""
    try:
        with zipfile.ZipFile(path) as file, path.open("rb") as raw:
            for member in sorted(file.infolist(), key=lambda one: one.filename):
                if member.filename.startswith(prefix) and not member.is_dir():
                    if member.file_size > _MOST_BYTES:
                        raise InvalidRows(f"{path}: {member.filename} is larger than {_MOST_BYTES >> 20} MiB")
                    packed = member.compress_type == ZSTANDARD
                    yield member.filename, _unpacked(raw, member) if packed else file.read(member)
    except (zipfile.BadZipFile, NotImplementedError, zlib.error, struct.error, OSError) as error:
        raise InvalidRows(f"{path} cannot be read as a zip file: {error}") from error


def _unpacked(raw: IO[bytes], member: zipfile.ZipInfo) -> bytes:
    """The content of a member whose method Python's zipfile does not know. Raises OSError when it is damaged."""
    import pyarrow as pa

    raw.seek(member.header_offset)
    *_, name_length, extra_length = _HEADER.unpack(raw.read(_HEADER.size))
    raw.seek(name_length + extra_length, 1)
    content = pa.Codec("zstd").decompress(raw.read(member.compress_size), member.file_size, asbytes=True)
    if zlib.crc32(content) != member.CRC:
        raise OSError(f"{member.filename} is damaged")
    return content
