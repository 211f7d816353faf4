"""What the flow tests share: running a flow on a log, counting the bodies that ran, code that changes.

Bodies are counted by themselves: they call `heard`. It is no code of theirs, so it is in no node key.
"""

from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import evsrc
from evsrc.log.base import Log

HEARD: list[str] = []


def heard(name: str) -> None:
    """A body runs."""
    HEARD.append(name)


def ran() -> list[str]:
    """The bodies that ran since the last time somebody asked, in order."""
    names = list(HEARD)
    HEARD.clear()
    return names


def counted() -> Counter[str]:
    """The same, as a count."""
    return Counter(ran())


async def go(
    log: Log | str | Path, flow: Any, value: Any, *, run_id: str | None = "r", **options: Any
) -> Any:
    """Run a flow in a runtime of its own and return the outcome."""
    async with evsrc.open_runtime(log, workflows=[flow], **options) as runtime:
        return await runtime.run(flow, value, run_id=run_id)


async def keep(log: Log, flow: Any, value: Any, *, run_id: str = "r", **options: Any) -> Any:
    """Answer every open question about a node with keep, wait for the end, and return the outcome."""
    async with evsrc.open_runtime(log, workflows=[flow], **options) as runtime:
        outcome = await runtime.run(flow, value, run_id=run_id)
        while isinstance(outcome, evsrc.Suspended):
            for question in outcome.questions:
                answered = await runtime.answers.answer(run_id, question.question, "keep", by="ada")
                assert answered.fits
            outcome = await runtime.run(flow, value, run_id=run_id)
        return outcome


def load(folder: Path, text: str) -> ModuleType:
    """A module with that text, from a file of its own; always called `playbook`."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = folder / f"playbook_{len(list(folder.glob('playbook_*')))}.py"
    path.write_text(text)
    spec = spec_from_file_location("playbook", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Seen:
    """An observer that keeps the moments of nodes as (name, node, item)."""

    def __init__(self) -> None:
        self.moments: list[tuple[str, str, str]] = []

    def on(self, moment: evsrc.Moment, /) -> None:
        """Keep it."""
        if moment.node:
            self.moments.append((moment.name, moment.node, moment.item))

    def of(self, name: str) -> list[str]:
        """The nodes of one kind of moment, in order, items as node[item]."""
        return [f"{n}[{i}]" if i else n for m, n, i in self.moments if m == name]
