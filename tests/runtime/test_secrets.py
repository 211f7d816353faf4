"""Secrets: by reference in arguments and log, by value only in the tool, in no key, error or repr."""

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

import evsrc
from evsrc.core.events import IntentRecorded
from evsrc.errors import EvsrcError, NotSent
from tests.runtime.desk import events, kinds, of_kind

pytestmark = pytest.mark.anyio

SECRET = "tok-3xYz-MARKED-9911"


class Vault:
    """Tools that use a token, and echo it in every text they produce."""

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)
        self.seen: list[str] = []

    @property
    def all_tools(self) -> list[evsrc.Tool[..., Any]]:
        """Every tool."""
        return [self.post, self.read]

    @evsrc.tool(effect=evsrc.Effect.MARKED, lag_s=0, late_s=0, history=True, secret=("token",))
    async def post(self, call: evsrc.Call, subject: str, token: evsrc.SecretRef) -> str:
        """An effect."""
        value = call.secret(token)
        self.seen.append(value)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "not-sent":
            raise NotSent(f"Authorization: Bearer {value}: refused")
        if fault:
            raise ConnectionResetError(f"Authorization: Bearer {value}")
        return "posted"

    @post.prepare
    async def _(self, call: evsrc.Call, subject: str, token: evsrc.SecretRef) -> str:
        value = call.secret(token)
        if self.faults and self.faults[0] == "prepare":
            self.faults.pop(0)
            raise ValueError(f"cannot read with {value}")
        return "prior"

    @post.probe
    async def _(self, call: evsrc.Call, subject: str, token: evsrc.SecretRef) -> evsrc.Verdict[str]:
        value, fault = call.secret(token), self.faults.pop(0) if self.faults else ""
        if fault == "probe":
            raise ValueError(f"GET /?token={value}")
        if fault == "conflict":
            return evsrc.Conflict(f"two with {value}", evidence=value)
        return evsrc.Happened("posted", evidence=f"found with {value}")

    @evsrc.tool(effect=evsrc.Effect.READ)
    async def read(self, call: evsrc.Call, subject: str, token: evsrc.SecretRef) -> str:
        """A read that fails."""
        raise ValueError(f"Authorization: Bearer {call.secret(token)}")


REF = evsrc.SecretRef("DESK_TOKEN")


def flow_of(vault: Vault, caught: list[BaseException]) -> Any:
    """A read, an effect, and what became of them."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        try:
            await run.call(vault.read, subject, REF)
        except EvsrcError as error:
            caught.append(error)
        return await run.call(vault.post, subject, REF)

    return flow


def shown(errors: list[BaseException]) -> str:
    """Everything that an error shows to people, and the errors behind it."""
    return "".join("".join(traceback.format_exception(e)) + repr(e) + str(e) for e in errors)


@pytest.mark.parametrize(
    "faults",
    [
        (),
        ("not-sent",),
        ("reset", ""),
        ("reset", "probe", ""),
        ("reset", "conflict"),
        ("prepare",),
        ("not-sent", "not-sent", "not-sent"),
    ],
)
async def test_the_value_is_nowhere(
    faults: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails and echoes the token: log bytes, errors, questions, logging and reprs are free of it."""
    caplog.set_level(logging.DEBUG)
    vault, caught = Vault(*faults), list[BaseException]()
    texts: list[str] = []

    class Watch:
        def on(self, moment: evsrc.Moment, /) -> None:
            texts.append(repr(moment))

    folder = tmp_path / "log"
    async with evsrc.open_runtime(
        folder, tools=vault.all_tools, secrets=lambda name: SECRET, observers=[Watch()]
    ) as runtime:
        outcome = await runtime.run(flow_of(vault, caught), "disk", run_id="r")
        texts += [repr(outcome), repr(runtime.questions()), repr(runtime.state("r"))]
        texts += [repr(getattr(outcome, "error", ""))]
        found = kinds(runtime._services.log)
    assert found.count("StepRecorded") == 1
    assert vault.seen == [SECRET] * len(vault.seen)
    assert vault.seen
    assert SECRET not in shown(caught)
    assert SECRET not in "".join(texts)
    assert SECRET not in caplog.text
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert b"DESK_TOKEN" in b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


async def test_the_key_does_not_depend_on_the_value() -> None:
    """A rotated token changes neither key nor identity; the reference stands in the intent."""
    keys = []
    for value in (SECRET, "rotated"):
        log, vault = evsrc.MemoryLog(namespace="n"), Vault()
        async with evsrc.open_runtime(
            log, tools=vault.all_tools, secrets=lambda name, value=value: value
        ) as runtime:
            await runtime.run(flow_of(vault, []), "disk", run_id="r")
        (intent,) = of_kind(log, IntentRecorded)
        keys.append((intent.key, intent.asked_digest, intent.sent))
        assert vault.seen == [value]
    assert keys[0] == keys[1]


async def test_a_secret_that_cannot_be_found_sends_nothing() -> None:
    """Without its secret a call is not sent, and says which one is missing; the tool is not entered."""

    def missing(name: str) -> str:
        raise LookupError(f"no {name} in the vault")

    log, entered = evsrc.MemoryLog(), list[str]()

    @evsrc.tool()
    async def post(call: evsrc.Call, token: evsrc.SecretRef) -> str:
        entered.append("x")
        return "sent"

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        try:
            return await run.call(post, REF)
        except NotSent as error:
            return str(error)

    async with evsrc.open_runtime(log, tools=[post], secrets=missing) as runtime:
        value = (await runtime.run(flow, "disk", run_id="r")).value
    assert entered == []
    assert "DESK_TOKEN" in value
    assert any("DESK_TOKEN" in repr(e) for e in events(log))
    assert "OutcomeUnknown" not in kinds(log)
