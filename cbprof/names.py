"""What things are called: many names of one thing as one, and short names for tables.

Programs write into a name what changes from one occurrence to the next: ``ProfilerStep#7``, an address, the hash of a
compiled graph, the number of an operator. For the causes of idle time, for phases and for comparisons such names are
one. Spans keep their full names, which pictures show.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

FEW = 8
"""Names that differ in nothing but numbers stay apart up to this many: ``conv1d`` and ``conv2d`` are two things."""

_END = "\0"  # of a name: many names are treated as one text, which is much faster than name by name
_AT_A_TIME = 1 << 14

_ADDRESS = "\1"

# Each begins with what is rare, so that a text without it is passed over quickly.
_CHANGING = (
    # torch.autograd.profiler.emit_nvtx: ``aten::addmm, seq = 47595, op_id = 3, sizes = [[8, 8]]``
    (re.compile(r", (?:stashed )?(?:seq|op_id|sizes|input_op_ids) = [^\0]*"), ""),
    (re.compile(r"0x[0-9a-fA-F]{3,}"), _ADDRESS),  # ``<built-in method get of dict object at 0x7f..>``
    (re.compile(r"\(sq\d+sk\d+\w*\)"), "(..)"),  # vLLM: lengths of queries and keys, which grow with every step
    (re.compile(r"\(\d+\):"), ":"),  # the line of a Python function: ``scheduler.py(340): schedule``
    (re.compile(r"(nn\.Module: \w+?)_\d+(?=\0)"), r"\1"),  # which layer of a kind
    (re.compile(r"#\d+"), "#"),
)
_HASH = re.compile(r"[0-9a-z-]{16}")
_HASHES = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "#"),
    (re.compile(r"\b[a-z2-7]{52}\b"), "#"),  # Inductor: of a graph, or of a file, in a folder of its first letters
    (re.compile(r"/[a-z0-9]{2}/#"), "/#"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{16,}\b"), "#"),
)
_NUMBERS = re.compile(r"\d+")
_PYTHON = re.compile(r"(?P<path>.+?)\.py(?:\(\d+\))?: (?P<function>.+)")
_BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<function>\w+).*>")
_LAYER = re.compile(r"nn\.Module: (?P<module>\w+?)(?:_\d+)?")
_COMPILED = re.compile(r"## Call (?P<graph>CompiledFxGraph)\b.*")
_WAITING = re.compile(r"wait|poll|select|sleep|<built-in (?:method|function) (?:acquire|wait|poll|select|sleep)\b.*>")
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
    distinct = dict.fromkeys(bare)
    families = _substitute(list(distinct), ((_NUMBERS, "#"),))
    sizes = Counter(families)
    key = {
        each: family if sizes[family] > FEW or family in distinct else each
        for each, family in zip(distinct, families, strict=True)
    }
    common = [key[each] for each in bare]
    first = dict(zip(reversed(common), reversed(names), strict=True))  # the name that is met first
    several = {each for each, name in zip(common, names, strict=True) if first[each] != name}
    place = {each: index for index, each in enumerate(dict.fromkeys(common))}
    return Naming([place[each] for each in common], tuple(each if each in several else first[each] for each in place))


def common_parts(names: Sequence[str]) -> list[str]:
    """Each name without what changes from one occurrence to the next, whatever the other names are."""
    bare = _substitute(names, _CHANGING)
    hashed = [each for each in dict.fromkeys(bare) if _HASH.search(each)]
    without = dict(zip(hashed, _substitute(hashed, _HASHES), strict=True))
    return [without.get(each, each) for each in bare] if without else bare


def _substitute(names: Sequence[str], patterns: Sequence[tuple[re.Pattern[str], str]]) -> list[str]:
    done: list[str] = []
    for first in range(0, len(names), _AT_A_TIME):
        some = names[first : first + _AT_A_TIME]
        text = _END.join((*some, ""))
        if text.count(_END) > len(some):
            text = _END.join((*(name.replace(_END, " ") for name in some), ""))
        for pattern, instead in patterns:
            text = pattern.sub(instead, text)
        for before in (" at ", " ", ""):
            text = text.replace(before + _ADDRESS, "")
        done += text.split(_END)[:-1]
    return done


def labels_of(names: Sequence[str]) -> list[str]:
    """Of paths or other names, what tells them apart: the last part, with as many folders as it takes."""
    parts = [name.replace("\\", "/").split("/") for name in names]
    longest = max(map(len, parts), default=0)
    tails = (["/".join(each[-count:]) for each in parts] for count in range(1, longest + 1))
    return next((found for found in tails if len(set(found)) == len(set(names))), list(names))


def any_matches(names: Sequence[str], pattern: re.Pattern[str], words: Sequence[str]) -> bool:
    """Whether a pattern is found in any of these names. ``words``: no name without one of them has it.

    Looking for words in many names at once is a hundred times as fast as trying the pattern on each.
    """
    for first in range(0, len(names), _AT_A_TIME):
        some = names[first : first + _AT_A_TIME]
        text = _END.join(some)
        if any(word in text for word in words) and any(map(pattern.search, some)):
            return True
    return False


def plain(text: str) -> str:
    """A line without control characters: names come from files, and are not to steer a terminal or a log."""
    return "".join(character if character.isprintable() else "?" for character in text)


def short(name: str) -> str:
    """A Python function without folder, line and object, as ``scheduler.schedule``; other names as they are."""
    if match := _BUILT_IN.fullmatch(name):
        return f"{match['function']} (built-in)"
    if match := _LAYER.fullmatch(name):
        return match["module"]
    if match := _COMPILED.fullmatch(name):
        return match["graph"]
    match = _PYTHON.fullmatch(name) if ".py" in name else None
    if not match:
        return name
    *folders, file = match["path"].split("/")
    return f"{folders[-1] if folders and file == '__init__' else file}.{match['function']}"


def waits(name: str) -> bool:
    """Whether a Python function of this name does nothing but wait: for a lock, for a file, for time to pass."""
    function = name.rpartition(": ")[2] if ".py" in name else name
    return bool(_WAITING.fullmatch(function))


OPERATORS, CALLS, FUNCTIONS, PHASES = "PyTorch operators", "runtime calls", "Python functions", "phases"


def sort_of(name: str) -> str:
    """What sort of thing a host span of this name is, as a table calls many of them."""
    if is_function(name):
        return FUNCTIONS
    if _CALL.fullmatch(name):
        return CALLS
    return OPERATORS if "::" in name or name.startswith(("triton_", "## Call")) else PHASES


def is_function(name: str) -> bool:
    """Whether it is called as a profiler calls a Python function or module."""
    return ".py" in name or name.startswith(("<", "nn.Module: "))


def is_whole(name: str) -> bool:
    """Whether it is known by its own name, whatever happens inside: an operator, a call, or the forward pass."""
    return name.startswith("nn.Module: ") or sort_of(name) in {OPERATORS, CALLS}
