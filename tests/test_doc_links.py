"""The links of the documentation lead somewhere: on the repository's pages, on a package index, and in the site."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cbprof

ROOT = Path(cbprof.__file__).parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "cbprof/**/*.md", "sample_traces/*.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return FENCED.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+?) *$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_to_what_is_there(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name(page)}: {link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{name(page)}: {link}: there is no such heading"


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_on_a_package_index_every_link_of_the_readme_leads_to_the_repository() -> None:
    hook = pyproject()["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    shown = (ROOT / hook["fragments"][0]["path"]).read_text(encoding="utf-8")
    for each in hook["substitutions"]:
        shown = re.sub(each["pattern"], each["replacement"], shown)
    repository = pyproject()["project"]["urls"]["Repository"]
    ours = [link for link in LINK.findall(shown) if "v$HFPR_VERSION" in link]
    assert len(ours) > 20
    for link in LINK.findall(shown):
        assert link.startswith(("https:", "#"))
        kind, _, path = link.removeprefix(f"{repository}/").partition("/v$HFPR_VERSION/")
        if link in ours:
            assert kind == ("raw" if path.endswith(".png") else "blob")


def test_the_address_of_the_repository_is_one() -> None:
    urls = pyproject()["project"]["urls"]
    assert all(url.startswith(urls["Repository"]) for url in urls.values())
    assert f"repo_url: {urls['Repository']}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_site_lists_every_page() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs')}\n" in listed, f"mkdocs.yml: nav lacks {name(page)}"


def test_the_changelog_has_a_dated_section_for_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == ("Unreleased", "")
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", dict(headings)[cbprof.__version__])
