"""Exit statuses: what a command's end means to the script that called it.

Rule: one meaning per number, the same in every command.
Does not know: how an error is shown.

| status | means |
|---|---|
| 0 | done |
| 1 | failed: a run, a tool, a refusal |
| 2 | the command line, or a file named there, is wrong; nothing was done |
| 3 | somebody must answer a question |
| 4 | acknowledged data is damaged, or cannot be read by this version |
| 130 | interrupted (Ctrl-C) |
"""

from collections.abc import Iterable
from typing import cast

from evsrc.errors import CallerError, LogCorrupt, UnknownEvent

OK, FAILED, USAGE, QUESTIONS, INTEGRITY, INTERRUPTED = 0, 1, 2, 3, 4, 130

_GRAVITY = (OK, QUESTIONS, FAILED, USAGE, INTEGRITY, INTERRUPTED)
"""From harmless to grave. A failed run outweighs a question: the question waits, the failure is news."""


class UsageError(CallerError):
    """Raised when the command line, or a file named there, cannot be what was meant."""


def worst(statuses: Iterable[int]) -> int:
    """The status of several: 4 over 1 over 3 over 0. One that has no meaning here counts as failed."""
    known = [status if status in _GRAVITY else FAILED for status in statuses]
    return max(known, key=_GRAVITY.index, default=OK)


def leaves(error: BaseException) -> list[BaseException]:
    """The error itself, or what a group holds, however deep: trio wraps also a lone Ctrl-C."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for member in group.exceptions for leaf in leaves(member)]


def status_of(error: BaseException) -> int:
    """The status of a command that ended with this error; of a group, the worst of its members."""
    members = leaves(error)
    if members != [error]:
        return worst(status_of(member) for member in members)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, LogCorrupt | UnknownEvent):
        return INTEGRITY
    return USAGE if isinstance(error, UsageError) else FAILED
