"""The arithmetic of two clocks: from events of a device to nanoseconds of the host, with error bounds. No torch.

A device tells only the time *between* two of its events, as float32 milliseconds: exact to 61 ns over one second,
but only to 31 us over five minutes. So anchors, events whose host time is known to lie in a bracket, are taken every
second or so, and each event is measured from an anchor close to it::

    device   a0 ------------ e1 ---- a1 --- e2 -------- a2 ...      D(a[k+1]) = D(a[k]) + elapsed(a[k], a[k+1])
              |               .       |      .           |          D(e)      = D(a[k]) + elapsed(a[k], e)
    host     [H0]             .      [H1]    .          [H2]        H(e)      = the straight line between the anchors

An event is mapped only once an anchor behind it exists. Extending the last line instead would make times jump at each
new anchor, and the spans of one stream overlap there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from cbprof.record.clocks.base import ClockErrors

EVENT_RESOLUTION_NS = 1000
"""Of the difference of two CUDA events: the CUDA runtime's manual gives each about 0.5 us."""

NS_PER_MS = 1_000_000

E = TypeVar("E")


class Bracket(NamedTuple):
    """Two readings of the host's clock, in nanoseconds, between which an event happened."""

    before_ns: int
    after_ns: int

    @property
    def width_ns(self) -> int:
        return self.after_ns - self.before_ns


class _Anchor(NamedTuple, Generic[E]):
    """An event with its time on the device's timeline, and its time on the host's clock with the error of that."""

    event: E
    device_ns: int
    host_ns: int
    error_ns: int


class Alignment(Generic[E]):
    """Maps events of one device to the host's clock.

    ``elapsed_ms(a, b)`` is the time from event ``a`` to event ``b``, negative if b was first, exact but for the
    rounding to float32. Both events must have happened.

    The mapping is monotone over all streams: an event that happened earlier never gets a later time. It takes
    three things: each event is measured from the anchor before it, which the sign of ``elapsed_ms`` tells exactly;
    rounding to float32 and to integers is monotone; the brackets of two anchors do not overlap.
    """

    def __init__(self, elapsed_ms: Callable[[E, E], float]) -> None:
        self._elapsed_ms = elapsed_ms
        self._anchors: list[_Anchor[E]] = []
        self._near = 0  # the anchor that the last event was measured from: events come roughly in order
        self._widest_error_ns = 0
        self._residual_ns = 0
        self._spacing_ms = 0.0

    def __len__(self) -> int:
        """The number of anchors."""
        return len(self._anchors)

    def add_anchor(self, event: E, bracket: Bracket) -> None:
        """Take an event that happened within ``bracket``, after all anchors so far."""
        device_ns = 0
        if self._anchors:
            last = self._anchors[-1]
            spacing_ms = self._elapsed_ms(last.event, event)
            device_ns = last.device_ns + round(spacing_ms * NS_PER_MS)
            self._spacing_ms = max(self._spacing_ms, spacing_ms)
        error_ns = (bracket.width_ns + 1) // 2
        self._anchors.append(_Anchor(event, device_ns, (bracket.before_ns + bracket.after_ns) // 2, error_ns))
        self._widest_error_ns = max(self._widest_error_ns, error_ns)
        if len(self._anchors) >= 3:
            left, middle, right = self._anchors[-3:]
            self._residual_ns = max(
                self._residual_ns, abs(middle.host_ns - _interpolate(left, right, middle.device_ns))
            )

    def host_ns(self, event: E) -> int | None:
        """When ``event`` happened, on the host's clock. None until an anchor behind it exists."""
        anchors, near = self._anchors, self._near
        if len(anchors) < 2:
            return None
        while (elapsed_ms := self._elapsed_ms(anchors[near].event, event)) < 0 and near > 0:
            near -= 1
        device_ns = anchors[near].device_ns + round(elapsed_ms * NS_PER_MS)
        while device_ns >= anchors[near + 1].device_ns:
            elapsed_ms = self._elapsed_ms(anchors[near + 1].event, event)
            if elapsed_ms < 0:  # rounded up to the next anchor, but before it
                break
            if near + 2 == len(anchors):
                return None
            near += 1
            device_ns = anchors[near].device_ns + round(elapsed_ms * NS_PER_MS)
        self._near = near
        return _interpolate(anchors[near], anchors[near + 1], device_ns)

    @property
    def errors(self) -> ClockErrors:
        """Bounds on the error of every time that :meth:`host_ns` gives, from the first anchor on.

        Host against device: half the widest bracket; plus how far any anchor lies from the line between its two
        neighbours, a safe estimate of what the line misses where the ratio of the clocks changes, since an event is
        at most half as far from its anchors; plus rounding. Device against device: the resolution of events, plus
        rounding. Rounding: two elapsed times, of the event and of the next anchor, are each off by at most half a
        unit in the last place of a float32; then come integer nanoseconds.
        """
        if not self._anchors:
            return ClockErrors(None, None)
        rounding_ns = math.ceil(2 * _float32_spacing(self._spacing_ms) * NS_PER_MS) + 2
        return ClockErrors(
            clock_error_ns=self._widest_error_ns + self._residual_ns + rounding_ns,
            device_error_ns=EVENT_RESOLUTION_NS + rounding_ns,
        )


def _interpolate(left: _Anchor[E], right: _Anchor[E], device_ns: int) -> int:
    """The host time of ``device_ns`` on the line through two anchors, rounded half up, in integers throughout."""
    rise, run = right.host_ns - left.host_ns, right.device_ns - left.device_ns
    return left.host_ns + (2 * (device_ns - left.device_ns) * rise + run) // (2 * run)


def _float32_spacing(value: float) -> float:
    """The distance from ``value`` to the next float32 (24 bits of mantissa)."""
    return float(math.ldexp(1.0, math.frexp(value)[1] - 24)) if value else 0.0
