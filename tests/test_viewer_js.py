"""The viewer's JavaScript: its linter, its tests in Node, and how its modules become one script.

``python tests/test_viewer_js.py`` writes ``viewer/run.json`` anew, the run that the tests in Node read.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_timeline import unpack
from timeline_samples import steady_trace

from cbprof.render.picture.coverage import coverage
from cbprof.render.picture.scene import scene
from cbprof.render.theme import STATES
from cbprof.render.web import bundle as bundle_module
from cbprof.render.web.bundle import bundle
from cbprof.render.web.viewer_columns import LARGEST, pack
from cbprof.render.web.viewer_data import enums, run_document

ROOT = Path(__file__).parents[1]
FIXTURE = Path(__file__).with_name("viewer") / "run.json"
READ = ("length", "names", "colors", "lanes", "spans", "devices", "steps", "coarse")  # by viewer/run.js
COLUMNS = ([], [0], [-1, 1, -128, 127, 255, 256], [LARGEST, -LARGEST, 0], list(range(10**9, 10**9 + 300, 3)))
in_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node on the PATH")


def fixture() -> dict[str, Any]:
    """Columns, a run of three steps, and how much of each bin of half a millisecond every state takes."""
    seen = scene(steady_trace(3))
    [found] = seen.devices
    bins = coverage(found, 0, seen.window.length_ns, seen.window.length_ns // 500_000)
    document = run_document(seen)
    return {
        "columns": [
            {"values": values, "packed": pack(np.array(values, dtype=np.int64), delta=delta)}
            for values in COLUMNS
            for delta in (False, True)
            if not (delta and LARGEST in values)
        ],
        "enums": enums(),
        "run": {key: document[key] for key in READ},
        "coverage": dict(zip(STATES, bins.stacked.tolist(), strict=True)),
    }


def unpacked(document: Any) -> Any:
    """With the numbers of each column in place of its text, which another zlib may deflate otherwise."""
    if isinstance(document, dict):
        if "width" in document:
            return [document["width"], document["delta"], unpack(document).tolist()]  # type: ignore[arg-type]
        return {key: unpacked(value) for key, value in document.items()}
    return [unpacked(each) for each in document] if isinstance(document, list | tuple) else document


def test_node_reads_what_python_writes_today() -> None:
    assert unpacked(json.loads(FIXTURE.read_text())) == unpacked(fixture())


def run(*command: str) -> None:
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@in_node
def test_the_linter_finds_nothing() -> None:
    assert (ROOT / "node_modules" / "eslint").is_dir(), "the linter is not installed: run `npm ci`"
    run("npm", "run", "lint")


@in_node
@pytest.mark.parametrize("file", sorted((ROOT / "tests" / "viewer").glob("*.test.js")), ids=lambda file: file.stem)
def test_in_node(file: Path) -> None:
    run("node", "--test", str(file))


@pytest.mark.parametrize("page", ["timeline", "report", "fleet"])
def test_a_page_has_one_script_that_imports_nothing(page: str) -> None:
    script = bundle(page)
    assert script == bundle(page)
    assert "\nimport " not in script
    assert "\nexport " not in script
    assert "</script" not in script
    places = [script.index(f"modules.{name} = ") for name in ("columns", "plot", "timeline") if page == "report"]
    assert places == sorted(places)
    assert script.count("modules.geometry = ") == (page != "fleet")


def modules(monkeypatch: pytest.MonkeyPatch, **sources: str) -> None:
    monkeypatch.setattr(bundle_module, "viewer_file", lambda name: sources[name.removesuffix(".js")])


def test_modules_in_a_circle_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    modules(monkeypatch, a='import { b } from "./b.js";\n', b='import { a } from "./a.js";\n')
    with pytest.raises(ValueError, match="a -> b -> a"):
        bundle("a")


@pytest.mark.parametrize(
    "line",
    [
        'import everything from "./b.js";',
        'import * as b from "./b.js";',
        'import { b as c } from "./b.js";',
        'import { b } from "elsewhere";',
        "export default 1;",
        "export { a };",
    ],
)
def test_forms_that_a_page_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    modules(monkeypatch, a=f"// a\n{line}\n")
    with pytest.raises(ValueError, match=r"a\.js: the page cannot hold"):
        bundle("a")


if __name__ == "__main__":
    FIXTURE.write_text(json.dumps(fixture(), separators=(",", ":")) + "\n")
