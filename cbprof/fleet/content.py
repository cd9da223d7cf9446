"""The content of a file on this machine's disk, and its fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cbprof.errors import DataError
from cbprof.fleet.files import TraceFile, filesystem
from cbprof.fleet.secrets import one_line

PIECE = 4 << 20
FINGERPRINT_BYTES = 20


class LocalContent(NamedTuple):
    """Where the content lies, and its fingerprint: the same bytes have the same, wherever they are stored."""

    path: Path
    fingerprint: str


@contextmanager
def on_disk(file: TraceFile) -> Iterator[LocalContent]:
    """A local file itself; of any other a copy, which is gone afterwards. Raises OSError where it cannot be read."""
    if file.is_local:
        path = Path(file.url)
        yield LocalContent(path, _fingerprint(path))
        return
    with TemporaryDirectory(prefix="cbprof-", dir=_scratch()) as folder:
        path = Path(folder) / (file.name.rpartition("/")[2] or "trace")
        fs, there = filesystem(file.url)
        try:
            fs.get_file(there, str(path))
        except FileNotFoundError:
            raise DataError(f"{file.name}: no such file; it was there a moment ago") from None
        except Exception as error:  # every store has errors of its own, with their own idea of what is secret
            raise OSError(one_line(error, file.url, there)) from None
        yield LocalContent(path, _fingerprint(path))


def _fingerprint(path: Path) -> str:
    digest = blake2b(digest_size=FINGERPRINT_BYTES)
    with path.open("rb") as content:
        while piece := content.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _scratch() -> str | None:
    """A worker's own folder, which is removed even if the worker is killed; elsewhere the system's."""
    from distributed import get_worker

    try:
        return str(get_worker().local_directory)
    except ValueError:
        return None
