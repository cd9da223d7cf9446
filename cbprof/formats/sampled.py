"""Does a file say that it is a sample, of which records were left out on purpose?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cbprof.trace import Trace

_SAMPLED = re.compile(r"(?<![a-z])(sub|down)?[-_ ]?sampled(?![a-z])", re.IGNORECASE)


def says_sampled(name: str, facts: Mapping[str, Any]) -> bool:
    """Whether the name of a file says so, or a fact that it states: ``"sampled": true``, ``"note": "sampled"``."""
    told = [value if isinstance(value, str) else key for key, value in facts.items() if isinstance(value, str) or value]
    return any(_SAMPLED.search(text) for text in (name, *told))


def doubted(trace: Trace) -> Trace:
    """The trace of such a file: what is left out of it shows as idle, so it is not called reliable."""
    warning = "the file says that it is sampled: records were left out of it, and what they were of shows as idle"
    meta = trace.meta
    if warning in meta.warnings:
        return trace
    return replace(trace, meta=replace(meta, reliable=False, warnings=(*meta.warnings, warning)))
