"""The viewer's modules as one script: a page that is opened from a file can import nothing beside it.

Each module becomes a block that returns what it exports, and an import looks it up there::

    import { Track } from "./geometry.js";          const { Track } = modules.geometry;
    export class Partition { ... }                  class Partition { ... }

                                                    return { Partition };

Blocks stand in the order of their imports, so that the script reads from the ground up; names that a module does not
export stay its own.
"""

from __future__ import annotations

import re
from importlib.resources import files

_IMPORT = re.compile(r'^import (\{ \w+(?:, \w+)* \}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def viewer_file(name: str) -> str:
    """The text of a file of ``viewer/``."""
    return (files("cbprof.render") / "viewer" / name).read_text(encoding="utf-8")


def bundle(entry: str) -> str:
    """The module ``entry`` (such as ``timeline``) and all that it imports, as the text of one module script.

    Raises ``ValueError`` where modules import each other in a circle, or import or export in another way than above.
    """
    blocks: dict[str, str] = {}
    _add(entry, blocks, ())
    return "\n".join(("const modules = {};", *blocks.values()))


def _add(name: str, blocks: dict[str, str], importers: tuple[str, ...]) -> None:
    """Put the block of a module behind those of its imports."""
    if name in importers:
        raise ValueError(f"modules import each other: {' -> '.join((*importers, name))}")
    if name in blocks:
        return
    source = viewer_file(f"{name}.js")
    for imported in _IMPORT.finditer(source):
        _add(imported[2], blocks, (*importers, name))
    exported = ", ".join(_EXPORT.findall(source))
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = modules.\2;", source))
    if other := _OTHER.search(body):
        raise ValueError(f"{name}.js: the page cannot hold this form of import or export: {other[0]}")
    blocks[name] = f"\n// viewer/{name}.js\nmodules.{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"
