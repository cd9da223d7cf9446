"""The viewer's JavaScript: its linter, its tests in Node, and how its modules become one script."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cbprof.render.web import bundle as bundle_module
from cbprof.render.web.bundle import bundle

ROOT = Path(__file__).parents[1]
in_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node on the PATH")


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
