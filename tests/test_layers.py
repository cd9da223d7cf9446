"""The house stands as designed: who may import whom, what is heavy, no cycles, no file too long to read."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import cbprof

PACKAGE = Path(cbprof.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE = 400

# Each room, and the rooms that it may import. A file right under cbprof/ is a room of its own.
MAY_IMPORT = {
    "__init__": {"api", "errors"},
    "__main__": {"cli"},
    "errors": set(),
    "numbers": set(),
    "names": set(),
    "files": {"errors"},
    "local_http": {"errors"},
    "meta": {"errors"},
    "riders": set(),
    "policy": set(),
    "trace": {"errors", "meta", "riders"},
    "formats": {"files", "numbers", "__init__", "names", "errors", "meta", "riders", "trace"},
    "analysis": {"numbers", "names", "errors", "meta", "policy", "riders", "trace"},
    "render": {"files", "numbers", "names", "errors", "meta", "trace", "analysis"},
    "engine": {"files", "numbers", "errors", "policy"},
    "record": {"files", "local_http", "numbers", "errors", "meta", "riders", "trace", "formats", "engine"},
    "fleet": {"files", "numbers", "__init__", "errors", "meta", "trace", "formats", "analysis", "render"},
    "lab": {"files", "numbers", "errors", "meta", "trace", "formats", "analysis", "render", "record", "engine"},
    "api": {
        "files",
        "numbers",
        "errors",
        "meta",
        "trace",
        "formats",
        "analysis",
        "render",
        "record",
        "engine",
        "fleet",
    },
    "browse": {"files", "local_http", "names", "numbers", "errors", "formats", "render", "api"},
    "cli": {
        "browse",
        "files",
        "names",
        "numbers",
        "__init__",
        "errors",
        "meta",
        "trace",
        "formats",
        "analysis",
        "render",
        "record",
        "engine",
        "lab",
        "api",
        "fleet",
    },
}
# What a module of a room may import at its top; everything heavier is imported where it is used.
MAY_LOAD = {
    "formats": {"numpy", "msgspec"},
    "riders": {"numpy"},
    "trace": {"numpy"},
    "analysis": {"numpy"},
    "render": {"files", "numpy", "rich", "plotly"},
    "engine": {"files", "numpy", "torch", "transformers", "triton"},
    "record": {"files", "numpy"},
    "fleet": {"numpy", "msgspec"},
    "lab": {"files", "numpy", "rich", "torch"},
    "cli": {"typer"},
}
TORCH_ONLY_IN = ("engine/model/", "engine/devices/cuda.py", "lab/cuda.py")
HEAVY = {
    "dask", "fsspec", "matplotlib", "msgspec", "pandas", "plotly", "pyarrow", "rich", "torch", "transformers", "triton",
}  # fmt: skip
# Files that import our own modules late so that a program starts fast: a command loads what it needs, a recorded
# program nothing before it imports torch, and an engine's workload is described without numpy.
START_UP = ("api.py", "cli/", "engine/workload.py", "fleet/", "record/program/child.py", "record/program/inject/")


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def imports(path: Path, *, top_only: bool) -> tuple[str, ...]:
    """Modules that a file imports; ``top_only``: when it is itself imported. Type checking counts for neither."""
    return tuple(_imports(path, top_only=top_only))


def _imports(path: Path, *, top_only: bool) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if top_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield full if full in MODULES else module
        pending.extend(ast.iter_child_nodes(node))


def heavy_packages(module: str) -> set[str]:
    """The heavy packages that are loaded when ``module`` is imported, by it or by what it imports of ours."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        if (name := pending.pop()) not in seen:
            seen.add(name)
            pending.extend(imports(MODULES[name], top_only=True) if name in MODULES else ())
    return {name.split(".")[0] for name in seen} & HEAVY


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_room_imports_only_the_rooms_before_it(path: Path) -> None:
    room = room_of(name_of(path))
    for module in imports(path, top_only=False):
        if module.split(".")[0] == "cbprof" and room_of(module) != room:
            assert room_of(module) in MAY_IMPORT[room], f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_heavy_packages_are_imported_where_they_are_used(path: Path) -> None:
    allowed = MAY_LOAD.get(room_of(name_of(path)), set())
    for module in imports(path, top_only=True):
        package = module.split(".")[0]
        if package != "cbprof" and package not in sys.stdlib_module_names:
            assert package in allowed, f"{name_of(path)} imports {package} at its top"
        if package in {"torch", "transformers", "triton"}:
            assert str(path.relative_to(PACKAGE)).startswith(TORCH_ONLY_IN), f"{name_of(path)} imports {package}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_our_own_modules_are_imported_at_the_top_unless_they_are_heavy(path: Path) -> None:
    if str(path.relative_to(PACKAGE)).startswith(START_UP):
        return
    at_the_top = Counter(imports(path, top_only=True))
    for module in Counter(imports(path, top_only=False)) - at_the_top:
        if module.split(".")[0] == "cbprof":
            needed = heavy_packages(module) - heavy_packages(name_of(path))
            assert needed, f"{name_of(path)} imports {module} in a function, and could at its top"


def test_there_are_no_import_cycles() -> None:
    graph = {name_of(path): {m for m in imports(path, top_only=False) if m.startswith("cbprof.")} for path in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("room", ["engine", "record", "formats", "analysis", "render", "fleet", "lab"])
def test_the_folders_of_a_room_do_not_import_each_other_in_circles(room: str) -> None:
    """A folder counts as one; a file right in the room stands for itself."""
    graph: dict[str, set[str]] = {}
    for path in FILES:
        name = name_of(path)
        if room_of(name) == room and name != f"cbprof.{room}":
            wanted = {inner_room(module) for module in imports(path, top_only=False) if room_of(module) == room}
            graph.setdefault(inner_room(name), set()).update(wanted - {inner_room(name), f"cbprof.{room}"})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"folders in a circle: {' -> '.join(error.args[1])}")


def inner_room(module: str) -> str:
    """``cbprof.analysis.accounting`` of ``cbprof.analysis.accounting.gaps``."""
    return ".".join(module.split(".")[:3])


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_stay_short_enough_to_read(path: Path) -> None:
    assert path.name != "utils.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("cbprof, cbprof.cli.main", {"numpy", "torch", "transformers", "pandas", "plotly", "msgspec"}),
        # What `cbprof run` needs: a GPU server has no more than torch, transformers, rich and typer.
        (
            "cbprof.record.session, cbprof.formats, cbprof.analysis.summary, cbprof.render.tables.summary",
            {"torch", "pandas", "plotly", "msgspec", "matplotlib"},
        ),
    ],
)
def test_imports_load_nothing_that_is_not_needed(modules: str, unwanted: set[str]) -> None:
    code = f"import sys, {modules}\nprint(*sorted({unwanted} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
