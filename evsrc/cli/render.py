"""Rendering: what goes to standard output and standard error.

Rule: results on standard output, everything else (progress, advice, errors) on standard error. Cells
and lines are rich Texts made by escape.py; markup is off everywhere.
Does not know: what the rows mean.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from evsrc.cli.escape import shown
from evsrc.cli.plain import to_json
from evsrc.cli.statuses import leaves

WIDTH_UNSEEN = 200
"""Width where no terminal says one: a pipe or a file should not fold ids."""

STYLES = {
    "completed": "green",
    "reuse": "green",
    "failed": "red",
    "blocked": "red",
    "refused": "red",
    "unreadable": "red",
    "duplicate": "red",
    "suspended": "yellow",
    "pinned": "yellow",
    "cancelled": "magenta",
    "run": "cyan",
    "running": "cyan",
}
"""Colours of statuses; what is not listed has none."""


def out() -> Console:
    """Standard output as it is now: tests and callers may have replaced it."""
    return _console(stderr=False)


def err() -> Console:
    """Standard error as it is now."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not stream.isatty():
        console.width = WIDTH_UNSEEN
    return console


def status_text(status: str) -> Text:
    """A status in its colour."""
    return shown(status, STYLES.get(status, ""))


def line(*parts: Text | str, console: Console | None = None) -> None:
    """One line, never folded. Strings are escaped, Texts are taken as they are."""
    text = Text(" ").join([p if isinstance(p, Text) else shown(p) for p in parts])
    (console or out()).print(text, soft_wrap=True)


def note(*parts: Text | str) -> None:
    """One line of advice, on standard error."""
    line(*parts, console=err())


def table(columns: Sequence[str], rows: Iterable[Sequence[Text | str]], title: str = "") -> None:
    """A table. Strings are escaped; long cells are folded, never cut."""
    grid = Table(
        title=shown(title) if title else None,
        title_justify="left",
        box=SIMPLE_HEAD,  # no lines between columns: eight of them fit into 80 characters
        pad_edge=False,
    )
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*[c if isinstance(c, Text) else shown(c) for c in row])
    out().print(grid)


def print_json(value: Any) -> None:
    """One JSON document, in ASCII."""
    sys.stdout.write(to_json(value, indent=2) + "\n")


def print_jsonl(value: Any) -> None:
    """One JSON document on one line, in ASCII, written at once: somebody may be following."""
    sys.stdout.write(to_json(value) + "\n")
    sys.stdout.flush()


def error_line(error: BaseException) -> None:
    """One line on standard error for an error; one each for the members of a group."""
    for leaf in leaves(error):
        text = "interrupted" if isinstance(leaf, KeyboardInterrupt) else str(leaf)
        note(shown("evsrc:", "red"), text or type(leaf).__name__)


def progress() -> Progress:
    """A live display on standard error; silent where that is no terminal."""
    console = err()
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
