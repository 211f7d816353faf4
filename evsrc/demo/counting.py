"""Counting what a crash did to the outside world, against a world where nothing crashed.

Rule: an effect is recognised by finding, tool and target, never by our own marker: a marker that we
derived wrongly would hide exactly the mistake that is to be counted.
Does not know: the log, runs, how the rows came about.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One effect as the world stored it. Times are in ns; `monotonic_ns` is the machine's clock."""

    id: int
    kind: str
    target: str
    finding: str
    tool: str
    marker: str
    payload: dict[str, object]
    monotonic_ns: int
    time_ns: int

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes two rows the same effect: finding, tool, target."""
        return (self.finding, self.tool, self.target)


class Counted(msgspec.Struct, frozen=True):
    """`effects` = rows of the reference + `duplicates` + `unexpected` - `lost`."""

    effects: int
    duplicates: int
    """Rows beyond what the reference holds of the same effect."""
    lost: int
    """Rows of the reference that are missing."""
    unexpected: int
    """Rows of effects that the reference does not hold at all."""


def count(rows: Iterable[Row], reference: Iterable[Row]) -> Counted:
    """Compare one world's rows with those of an uninterrupted run in another world."""
    have = Counter(row.identity for row in rows)
    want = Counter(row.identity for row in reference)
    return Counted(
        effects=have.total(),
        duplicates=(have - want).total() - _unexpected(have, want),
        lost=(want - have).total(),
        unexpected=_unexpected(have, want),
    )


def _unexpected(have: Counter[tuple[str, str, str]], want: Counter[tuple[str, str, str]]) -> int:
    return sum(number for identity, number in have.items() if identity not in want)
