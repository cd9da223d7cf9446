"""The causes of idle time from the outside in: a tree of what the host worked at, and a handful of names for it.

::

    the host was late   step ── execute_model ─┬─ prepare_inputs ── 40 small functions
                            │                  └─ LlamaForCausalLM ── 500 small functions
                            └── schedule ── 90 small functions

A profiler that records Python functions finds hundreds of innermost ones, each to blame for little. What encloses them
has a name that its developer knows. The tree is cut where the largest parts come apart, so that few names say most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cbprof.analysis.accounting.blame import CAUSES, Blame, BlameTotal, Cause
from cbprof.analysis.accounting.gaps import Gaps
from cbprof.analysis.accounting.host import HostTimeline, frames
from cbprof.analysis.accounting.intervals import sum_by
from cbprof.names import PHASES, is_whole, short, sort_of
from cbprof.trace import NONE, Int8, Int32, Int64, Trace, one_of

MOST_CAUSES = 12
"""Of one device. More than these are taken together by what encloses them."""

LEAST_SHARE = 0.01
"""Of the idle time. Smaller branches of the tree are not told."""

WRAPPED = 0.95
"""From this share on a branch is all that its parent does: the parent is a wrapper, and passed over."""


@dataclass(frozen=True, slots=True)
class Branch:
    """``ns``: idle time for which a host span and all that is nested in it are to blame; ``own_ns``: nothing nested.

    ``nodes``: which of the tree's nodes it is: its own, and that of what it wraps.
    """

    name: str
    ns: int
    own_ns: int
    children: tuple[Branch, ...] = ()
    nodes: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ns": self.ns,
            "own_ns": self.own_ns,
            "children": [child.to_json() for child in self.children],
        }


@dataclass(frozen=True, slots=True)
class Causes:
    """``totals``: at most :data:`MOST_CAUSES`, largest first; they sum to the idle time. ``tree``: its outer branches.

    The tree holds what the host worked at before launches; what is small is left out. ``spans``: the host spans that
    worked then, ascending; ``of_span``: the place in ``totals`` of the name that each goes by. ``blame``: what the
    causes are of.
    """

    totals: tuple[BlameTotal, ...]
    tree: tuple[Branch, ...]
    spans: Int64
    of_span: Int64
    blame: Blame

    def places(self, cause: Int8, span: Int64) -> Int64:
        """The place in ``totals`` of each of these causes, with the host span that is to blame: what all views say."""
        of_cause = np.full(len(Cause), NONE, dtype=np.int64)
        for place, total in enumerate(self.totals):
            of_cause[total.cause] = place
        found: Int64 = of_cause[cause]
        phases = np.flatnonzero(cause == Cause.PHASE)
        found[phases] = self.of_span[np.searchsorted(self.spans, span[phases])]
        return found

    def in_gaps(self, gaps: Int64) -> list[tuple[BlameTotal, ...]]:
        """What the device waited for in each of these gaps, largest first: times by these names that sum to the gap."""
        parts = self.blame.parts
        chosen = np.isin(parts.gap, gaps)
        place = self.places(parts.cause[chosen], parts.span[chosen])
        key, of_part = np.unique(parts.gap[chosen] * len(self.totals) + place, return_inverse=True)
        found: dict[int, list[BlameTotal]] = {gap: [] for gap in gaps.tolist()}
        for each, ns in zip(key.tolist(), sum_by(of_part, parts.ns[chosen], len(key)).tolist(), strict=True):
            gap, total = divmod(each, len(self.totals))
            found[gap].append(self.totals[total]._replace(ns=ns))
        return [tuple(sorted(found[gap], key=lambda part: -part.ns)) for gap in gaps.tolist()]


def in_words(totals: Sequence[BlameTotal]) -> dict[str, int]:
    """What a device waited for in the words of all text, with the nanoseconds of each, most first."""
    found: dict[str, int] = {}
    for part in totals:
        found[part.in_words] = found.get(part.in_words, 0) + part.ns
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def causes(trace: Trace, blame: Blame, host: HostTimeline) -> Causes:
    """What a device waited for, in few names, and how they nest."""
    working = blame.parts.cause == Cause.PHASE
    tree = _tree(trace, blame.parts.span[working], blame.parts.ns[working], host)
    totals = blame.totals()
    idle_ns = sum(total.ns for total in totals)
    if len(totals) > MOST_CAUSES:
        totals, place_of = _taken_together(totals, tree.root)
        of_node = [place_of.get(node, NONE) for node in range(int(tree.of_span.max(initial=NONE)) + 1)]
        of_span = np.array(of_node, dtype=np.int64)[tree.of_span]
    else:
        place = {total.label: index for index, total in enumerate(totals) if total.cause is Cause.PHASE}
        of_label = np.array([place.get(label, NONE) for label in host.labels], dtype=np.int64)
        of_span = of_label[host.label_of[trace.name_id[tree.spans]]]
    pruned = tuple(_pruned(tree.root.children, LEAST_SHARE * idle_ns))
    return Causes(totals, pruned, tree.spans, of_span, blame)


def _taken_together(totals: tuple[BlameTotal, ...], root: Branch) -> tuple[tuple[BlameTotal, ...], dict[int, int]]:
    """The same with phases by the names of a cut through the tree, and the place among them of each node."""
    others = [total for total in totals if total.cause is not Cause.PHASE]
    cut = [root]
    found = _phases(cut)
    while branch := max(_next_branches(cut), key=lambda each: each.ns, default=None):
        finer = _phases([*cut, branch])
        if len(finer) + len(others) > MOST_CAUSES:
            break
        cut, found = [*cut, branch], finer
    phases = [BlameTotal(Cause.PHASE, name, ns) for name, ns in found.items()]
    ordered = tuple(sorted((*others, *phases), key=lambda total: -total.ns))
    place = {total.label: index for index, total in enumerate(ordered) if total.cause is Cause.PHASE}
    return ordered, {node: place[name] for node, name in _names_of_nodes(cut).items() if name in place}


def _names_of_nodes(cut: list[Branch]) -> dict[int, str]:
    """By what name each node of the tree goes: that of the innermost named branch that it lies in."""
    named = set(map(id, cut[1:]))
    found: dict[int, str] = {}
    waiting = [(child, _sort_in_words(child)) for child in cut[0].children]
    while waiting:
        branch, around = waiting.pop()
        name = short(branch.name) if id(branch) in named else around
        found |= dict.fromkeys(branch.nodes, name)
        waiting += [(child, name) for child in branch.children]
    return found


def _sort_in_words(branch: Branch) -> str:
    return f"other {sort_of(branch.name)}"


def _next_branches(cut: list[Branch]) -> Iterator[Branch]:
    """The branches that could be named next: those directly below a named one, unless that is known as a whole."""
    taken = set(map(id, cut))
    for each in cut:
        if not is_whole(each.name):
            yield from (child for child in each.children if id(child) not in taken)


def _phases(cut: list[Branch]) -> dict[str, int]:
    """Each named branch less the named ones below it; what stands right below the root by its sort."""
    taken = set(map(id, cut))
    root, *named = cut
    found: dict[str, int] = {}
    for child in root.children:
        if id(child) not in taken:
            name = _sort_in_words(child)
            found[name] = found.get(name, 0) + child.ns
    for each in named:
        own_ns = each.ns - sum(child.ns for child in each.children if id(child) in taken)
        found[short(each.name)] = found.get(short(each.name), 0) + own_ns
    return {name: ns for name, ns in found.items() if ns}


def _pruned(branches: tuple[Branch, ...], least_ns: float) -> Iterator[Branch]:
    for each in branches:
        if each.ns >= max(least_ns, 1):
            yield Branch(short(each.name), each.ns, each.own_ns, tuple(_pruned(each.children, least_ns)))


def idle_stacks(trace: Trace, blame: Blame, gaps: Gaps, host: HostTimeline) -> Branch:
    """All idle time by the host's code: a tree of what it worked at, whole launches among it, with every branch.

    Idle time that belongs to no host span, such as work in the queue, is a branch for each cause. ``own_ns`` of all
    branches sum to the idle time.
    """
    parts = blame.parts
    span = np.where(parts.cause == Cause.LAUNCH, gaps.launch[parts.gap], parts.span)
    in_code = one_of(parts.cause, (Cause.PHASE, Cause.LAUNCH)) & (span != NONE)
    tree = _tree(trace, span[in_code], parts.ns[in_code], host)
    others = sum_by(parts.cause[~in_code].astype(np.int64), parts.ns[~in_code], len(Cause)).tolist()
    branches = [Branch(CAUSES.get(Cause(cause), ""), ns, ns) for cause, ns in enumerate(others) if ns]
    children = sorted((*tree.root.children, *branches), key=lambda child: -child.ns)
    return Branch("", sum(child.ns for child in children), 0, tuple(children))


class _Tree(NamedTuple):
    """``spans``: the host spans to blame, ascending; ``of_span``: the node of each."""

    root: Branch
    spans: Int64
    of_span: Int64


def _tree(trace: Trace, span: Int64, ns: Int64, host: HostTimeline) -> _Tree:
    """Host spans, each to blame for so many ``ns``, by name below the name of what encloses it; no wrappers.

    The frame of a step is no branch: what it encloses stands below what encloses it.
    """
    spans, of_part = np.unique(span, return_inverse=True)
    span_ns = sum_by(of_part, ns, len(spans))
    rows, up = _enclosing(trace, spans, host)
    level = _levels(up)
    node = np.full(len(rows), NONE, dtype=np.int64)
    label = host.label_of[trace.name_id[rows]].astype(np.int64)
    parents: list[int] = []
    labels: list[int] = []
    n_nodes = 0
    for depth in range(int(level.max(initial=NONE)) + 1):
        mine = np.flatnonzero(level == depth)
        above = np.where(up[mine] == NONE, NONE, node[up[mine]])
        pairs, of_pair = np.unique((above + 1) * len(host.labels) + label[mine], return_inverse=True)
        node[mine] = n_nodes + of_pair
        parents += (pairs // len(host.labels) - 1).tolist()
        labels += (pairs % len(host.labels)).tolist()
        n_nodes += len(pairs)
    of_span = node[np.searchsorted(rows, spans)]
    own = sum_by(of_span, span_ns, n_nodes).tolist()
    children: list[list[Branch]] = [[] for _ in range(n_nodes + 1)]  # the last is the root's: parent -1
    for index in reversed(range(n_nodes)):
        children[parents[index]].append(_branch(host.labels[labels[index]], own[index], children[index], (index,)))
    return _Tree(_unwrapped(_branch("", 0, children[-1])), spans, of_span)


def _branch(name: str, own_ns: int, children: list[Branch], nodes: tuple[int, ...] = ()) -> Branch:
    """With its children, largest first. A wrapper has the children of what it wraps, and its name, unless it is told.

    What is told: a phase that somebody named on purpose, an operator, the module at the top of a model.
    """
    ns = own_ns + sum(child.ns for child in children)
    most = max(children, key=lambda child: child.ns, default=None)
    if most is not None and name and len(most.children) and most.ns >= WRAPPED * ns and not is_whole(most.name):
        others = [child for child in children if child is not most]
        children = [*others, *most.children]
        own_ns += most.own_ns
        nodes += most.nodes
        name = name if is_whole(name) or sort_of(name) == PHASES else most.name
    return Branch(name, ns, own_ns, tuple(sorted(children, key=lambda child: -child.ns)), nodes)


def _unwrapped(root: Branch) -> Branch:
    """Without the outermost wrappers, such as the main program: their parts stand at the top."""
    while root.children:
        first, *others = root.children
        if is_whole(first.name) or first.ns - first.own_ns < WRAPPED * root.ns:
            break
        parts = sorted((*others, *first.children), key=lambda child: -child.ns)
        own = (Branch(first.name, first.own_ns, first.own_ns, nodes=first.nodes),) if first.own_ns else ()
        root = Branch("", root.ns, 0, (*parts, *own))
    return root


def _enclosing(trace: Trace, spans: Int64, host: HostTimeline) -> tuple[Int64, Int64]:
    """These host spans and all that enclose them, ascending; of each the place of the one around it, or -1.

    Frames of steps enclose nothing.
    """
    needed = np.zeros(len(trace), dtype=bool)
    needed[spans] = True
    around: Int64 | Int32 = spans
    while len(around):
        around = np.unique(host.parent[around])
        around = around[around != NONE]
        around = around[~needed[around]]
        needed[around] = True
    framing = frames(trace)
    rows = np.flatnonzero(needed & ~framing)
    up: Int32 = host.parent[rows]
    while (inside := (up != NONE) & framing[up]).any():
        up = np.where(inside, host.parent[up], up)
    return rows, np.where(up == NONE, NONE, np.searchsorted(rows, up))


def _levels(up: Int64) -> Int64:
    """How many spans enclose each."""
    level = np.zeros(len(up), dtype=np.int64)
    above = up
    while (known := above != NONE).any():
        level += known
        above = np.where(known, up[above], NONE)
    return level
