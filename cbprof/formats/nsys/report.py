"""Reports of Nsight Systems, which only its own ``nsys`` can open: exported once, into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from cbprof.errors import DataError
from cbprof.formats.bytes.foreign import can_be_exported
from cbprof.formats.cache import cache_folder
from cbprof.names import plain


def export_of(report: Path) -> Path | None:
    """The SQLite export of a report, made by ``nsys export`` unless it was before; None where it is no report.

    None, too, where there is no ``nsys`` to ask. An export is kept for one state of its report, by its place, size and
    time of change. Raises :class:`DataError` in one line where ``nsys`` fails or the cache cannot be written.
    """
    nsys = shutil.which("nsys") if can_be_exported(report) else None
    if nsys is None:
        return None
    folder = cache_folder()
    if folder is None:
        raise DataError(
            f"{report}: cannot be exported: no cache folder is the user's alone; name one in XDG_CACHE_HOME"
        )
    try:
        export = folder / f"nsys-{_state(report)}.sqlite"
        if not export.exists():
            _export(nsys, report, export)
    except OSError as error:
        raise DataError(f"{report}: cannot be exported: {error.strerror or error}") from error
    return export


def _state(report: Path) -> str:
    place, stat = report.resolve(), report.stat()
    return sha256(f"{place}\0{stat.st_ino}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()[:16]


def _export(nsys: str, report: Path, export: Path) -> None:
    """Write the whole export, or nothing. The report is given by its absolute path, which is no option to ``nsys``."""
    print(plain(f"cbprof: exporting {report} with `nsys export`; it is kept in {export.parent}"), file=sys.stderr)
    unfinished = export.with_name(f".{os.getpid()}-{export.name}")
    # The file of this name is our own, from an attempt that was cut short: it may be replaced.
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(unfinished)]
    try:
        ended = subprocess.run(
            [*command, str(report.absolute())], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if ended.returncode or not unfinished.exists():
            said = (ended.stderr.strip() or ended.stdout.strip()).decode(errors="replace").splitlines()
            why = " ".join(said[-1].split())[:160] if said else "it said nothing"
            raise DataError(f"{report}: `nsys export` failed with exit code {ended.returncode}: {why}")
        os.replace(unfinished, export)
    finally:
        unfinished.unlink(missing_ok=True)
