"""Workflows: declared by a decorator, typed by their annotations, versioned by their code."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import evsrc
from evsrc.errors import DefinitionError, InputMismatch, NoSource
from tests.runtime.flows import go, load


class Alert(msgspec.Struct, frozen=True):
    """An input."""

    host: str


@evsrc.workflow
async def triage(run: evsrc.Run, alert: Alert) -> tuple[str, int]:
    """A workflow."""
    return alert.host, 1


async def test_a_workflow_takes_its_input_and_gives_its_result() -> None:
    """The result has its declared type, from the log too, and the run knows the workflow's name."""
    log = evsrc.MemoryLog()
    for _ in range(2):
        outcome = await go(log, triage, Alert("dc01"))
        assert isinstance(outcome, evsrc.Completed)
        assert outcome.value == ("dc01", 1)
    with pytest.raises(InputMismatch, match="another input"):
        await go(log, triage, Alert("dc02"))


async def test_a_failed_workflow_is_a_failed_run() -> None:
    """Its error is recorded, and the same over a restart."""

    @evsrc.workflow(version="1")
    async def fails(run: evsrc.Run, alert: Alert) -> int:
        raise ValueError(alert.host)

    log = evsrc.MemoryLog()
    for _ in range(2):
        outcome = await go(log, fails, Alert("dc01"))
        assert isinstance(outcome, evsrc.Failed)
        assert (outcome.error.type, outcome.error.message) == ("ValueError", "dc01")


def test_its_name_and_version_can_be_declared() -> None:
    """Otherwise the function's name, and a digest of its code."""

    @evsrc.workflow(name="named", version="7")
    async def declared(run: evsrc.Run, alert: Alert) -> int:
        return 1

    assert (declared.name, declared.version) == ("named", "7")
    assert (triage.name, len(triage.version)) == ("triage", 64)


def test_the_version_follows_the_code(tmp_path: Path) -> None:
    """Another body is another version; a comment is none."""
    text = (
        "import evsrc\n@evsrc.workflow\nasync def w(run: evsrc.Run, n: int) -> int:\n    return n\n"
    )
    versions = [
        load(tmp_path, changed).w.version
        for changed in (text, text + "    # why\n", text.replace("return n", "return n + 1"))
    ]
    assert versions[0] == versions[1] != versions[2]


def test_a_workflow_without_source_needs_a_version() -> None:
    """From a REPL, say."""
    scope: dict[str, Any] = {"evsrc": evsrc}
    exec("async def w(run: evsrc.Run, n: int) -> int: return n", scope)
    with pytest.raises(NoSource):
        _ = evsrc.workflow(scope["w"]).version
    assert evsrc.workflow(version="1")(scope["w"]).version == "1"


async def no_annotation(run, alert):  # type: ignore[no-untyped-def]
    """Nothing tells its types."""


async def no_result(run: evsrc.Run, alert: Alert):  # type: ignore[no-untyped-def]
    """Nothing tells its result's type."""


async def no_input(run: evsrc.Run) -> int:
    """Takes no input."""
    return 1


async def too_much(run: evsrc.Run, alert: Alert, more: int) -> int:
    """Takes more than the input."""
    return 1


@pytest.mark.parametrize("fn", [no_annotation, no_result, no_input, too_much])
def test_a_workflow_is_declared_run_and_input(fn: Any) -> None:
    """Anything else is refused with its name and the form that fits."""
    with pytest.raises(DefinitionError, match=rf"workflow {fn.__name__}: declare exactly"):
        _ = evsrc.workflow(fn).types


def test_types_that_cannot_be_recorded_are_refused() -> None:
    """Input and result are in the log."""

    class Opaque:
        pass

    async def takes(run: evsrc.Run, alert: Opaque) -> int:
        return 1

    async def gives(run: evsrc.Run, alert: Alert) -> Opaque:
        return Opaque()

    for fn, what in ((takes, "input"), (gives, "result")):
        with pytest.raises(DefinitionError, match=f"workflow {fn.__name__}, {what}.*Opaque"):
            _ = evsrc.workflow(fn).types  # type: ignore[arg-type]
