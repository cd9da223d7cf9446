"""What things are called: many names of one thing as one, and short names for tables.

Programs write into a name what changes from one occurrence to the next: ``ProfilerStep#7``, an address, the hash of a
compiled graph, the number of an operator. For the causes of idle time, for phases and for comparisons such names are
one. Spans keep their full names, which pictures show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

FEW = 8
"""Names that differ in nothing but numbers stay apart up to this many: ``conv1d`` and ``conv2d`` are two things."""

_END = "\0"  # of a name: all names are treated as one text, which is much faster than name by name

_CHANGING = (
    # torch.autograd.profiler.emit_nvtx: ``aten::addmm, seq = 47595, op_id = 3, sizes = [[8, 8]]``
    (re.compile(r", (?:stashed )?(?:seq|op_id|sizes|input_op_ids) = [^\0]*"), ""),
    (re.compile(r"(?: at)? ?\b0x[0-9a-fA-F]{3,}"), ""),  # an address: ``<built-in method get of dict at 0x7f..>``
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "#"),
    (re.compile(r"(?:(?<=/)[a-z0-9]{2}/)?\b[a-z2-7]{52}\b"), "#"),  # Inductor: of a graph, or of a file in its folder
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{16,}\b"), "#"),
    (re.compile(r"\((?:sq\d+sk\d+)\w*\)"), "(..)"),  # vLLM: lengths of queries and keys, which grow with every step
    (re.compile(r"\(\d+\):"), ":"),  # the line of a Python function: ``scheduler.py(340): schedule``
    (re.compile(r"(nn\.Module: \w+?)_\d+(?=\0)"), r"\1"),  # which layer of a kind
    (re.compile(r"#\d+"), "#"),
)
_NUMBERS = re.compile(r"\d+")
_PYTHON = re.compile(r"(?:.*/)?(?P<file>[^/]+?)(?:\(\d+\))?: (?P<function>.+)")
_BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<function>\w+).*>")
_LAYER = re.compile(r"nn\.Module: (?P<module>\w+?)(?:_\d+)?")
_COMPILED = re.compile(r"## Call (?P<graph>CompiledFxGraph)\b.*")
_CALL = re.compile(r"(cuda|cu|hip|hsa_|ze|ur|pi|mu|mc|cn|acl)[A-Z_]\w*")


class Naming(NamedTuple):
    """``of``: for each name its label, an index of ``labels``, which are the names that stay apart."""

    of: list[int]
    labels: tuple[str, ...]


def naming(names: Sequence[str]) -> Naming:
    """Which of these names mean one thing, and what to call it: by its name, or by what its names have in common.

    What always changes counts for nothing. Other numbers count, unless more than :data:`FEW` names, or a name in which
    ``#`` stands for them, differ in nothing else.
    """
    bare = common_parts(names)
    alike: dict[str, set[str]] = {}
    for each, family in zip(bare, _substitute(bare, _NUMBERS, "#"), strict=True):
        alike.setdefault(family, set()).add(each)
    key: dict[str, str] = {}
    for family, members in alike.items():
        one = len(members) > FEW or family in members
        key |= {each: family if one else each for each in members}
    found: dict[str, set[str]] = {}
    for name, each in zip(names, bare, strict=True):
        found.setdefault(key[each], set()).add(name)
    place = {each: index for index, each in enumerate(found)}
    labels = tuple(next(iter(members)) if len(members) == 1 else each for each, members in found.items())
    return Naming([place[key[each]] for each in bare], labels)


def common_parts(names: Sequence[str]) -> list[str]:
    """Each name without what changes from one occurrence to the next, whatever the other names are."""
    text = _END.join((*(name.replace(_END, " ") for name in names), ""))
    for pattern, instead in _CHANGING:
        text = pattern.sub(instead, text)
    return text.split(_END)[:-1]


def _substitute(names: Sequence[str], pattern: re.Pattern[str], instead: str) -> list[str]:
    return pattern.sub(instead, _END.join((*names, ""))).split(_END)[:-1]


def short(name: str) -> str:
    """A Python function without folder, line and object, as ``scheduler.py: schedule``; other names as they are."""
    if match := _BUILT_IN.fullmatch(name):
        return f"{match['function']} (built-in)"
    if match := _LAYER.fullmatch(name):
        return match["module"]
    if match := _COMPILED.fullmatch(name):
        return match["graph"]
    match = _PYTHON.fullmatch(name) if ".py" in name else None
    return f"{match['file']}: {match['function']}" if match else name


def short_kernel(name: str) -> str:
    """A kernel without its return type, template and arguments: ``at::native::vectorized_elementwise_kernel``."""
    return re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0].strip() or name


OPERATORS, CALLS, FUNCTIONS, PHASES = "PyTorch operators", "runtime calls", "Python functions", "phases"


def sort_of(name: str) -> str:
    """What sort of thing a host span of this name is, as a table calls many of them."""
    if _CALL.fullmatch(name):
        return CALLS
    if ".py" in name or name.startswith(("<", "nn.Module: ")):
        return FUNCTIONS
    return OPERATORS if "::" in name or name.startswith(("triton_", "## Call")) else PHASES


def is_whole(name: str) -> bool:
    """Whether it is known by its own name, whatever happens inside: an operator, a call, or the forward pass."""
    return name.startswith("nn.Module: ") or sort_of(name) in {OPERATORS, CALLS}
