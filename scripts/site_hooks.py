"""What mkdocs calls while it builds the site: the README becomes its first page, and links out of docs/ lead to the
repository, after it was seen that what they name is there."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
ADDED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in ADDED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: object) -> str:
    """The page's links, as they are to be on the site."""
    at = PurePosixPath(page.file.src_uri)
    source = {to: name for name, to in ADDED.items()}.get(str(at), f"docs/{at}")

    def on_the_site(link: re.Match[str]) -> str:
        target = normpath(f"{PurePosixPath(source).parent}/{link[1]}")
        if not (ROOT / target).exists():
            raise PluginError(f"{source}: {link[1]}: there is no such file")
        if target in ADDED or (target.startswith("docs/") and (ROOT / target).is_file()):
            page_of = ADDED.get(target, target.removeprefix("docs/"))
            return f"]({relpath(page_of, str(at.parent))}{link[2] or ''})"
        return f"]({(config.repo_url or '').rstrip('/')}/blob/main/{target}{link[2] or ''})"

    return LINK.sub(on_the_site, markdown)
