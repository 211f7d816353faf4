"""Running an adapter's functions: where they run, with what, and what leaves them."""

import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.from_thread
import pytest

from evsrc.core.verdicts import Absent, Found, Happened, Undetermined, Verdict
from evsrc.errors import DefinitionError, LimitExceeded, NotSent
from evsrc.tools import Call, SecretRef, Secrets, SweepEnd, Tool, tool

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CALL = Call(key="a" * 64, marker="evsrc-abc")


class Adapter:
    def __init__(self, instance: str = "") -> None:
        self.instance = instance
        self.seen: list[Any] = []

    @tool()
    async def act(self, call: Call, host: str, /, *, count: int = 1) -> str:
        self.seen.append((call, host, count))
        return host

    @act.probe
    def _(self, call: Call, host: str, /, *, count: int = 1) -> Verdict[str]:
        return Happened(f"{host}{count}")

    @act.prepare
    async def _(self, call: Call, host: str, /, *, count: int = 1) -> dict[str, int]:
        return {"count": count}

    @act.undo
    async def _(self, call: Call, result: str) -> None:
        self.seen.append(result)

    @tool()
    def block(self, call: Call) -> int:
        return threading.get_ident()


async def swept(made: Tool[..., Any]) -> list[Any]:
    return [item async for item in made.bound.sweep(NOW)]


async def test_methods_get_their_object_and_arguments(anyio_backend: str) -> None:
    """Send, probe, prepare and undo of a method get the object, the call and the arguments."""
    adapter = Adapter("prod")
    bound = adapter.act.bound
    arguments = bound.bind(("dc",), {"count": 2}).arguments
    assert await bound.send(CALL, arguments) == "dc"
    assert await bound.probe(CALL, arguments) == Happened("dc2")
    assert await bound.prepare(CALL, arguments) == {"count": 2}
    await bound.undo(CALL, "ticket")
    assert adapter.seen == [(CALL, "dc", 2), "ticket"]
    assert (bound.name, bound.instance) == ("act", "prod")


async def test_blocking_tools_run_in_a_worker_thread(anyio_backend: str) -> None:
    """A plain function never runs on the event loop's thread, and it uses the given limiter."""
    bound = Adapter().block.bound
    limiter = anyio.CapacityLimiter(1)
    assert await bound.send(CALL, {}, limiter) != threading.get_ident()
    limiter.acquire_on_behalf_of_nowait("somebody else")
    with anyio.move_on_after(0.05) as scope:
        await bound.send(CALL, {}, limiter)
    assert scope.cancelled_caught


async def test_cancelled_blocking_send_waits_for_its_thread(anyio_backend: str) -> None:
    """An attempt in a thread is over only when the thread is: it is never left running."""
    ended: list[bool] = []
    started = anyio.Event()
    release = threading.Event()

    @tool()
    def slow(call: Call) -> None:
        anyio.from_thread.run_sync(started.set)
        release.wait(5)
        ended.append(True)

    async def cancel(scope: anyio.CancelScope) -> None:
        await started.wait()
        scope.cancel()
        release.set()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(cancel, scope)
            await slow.bound.send(CALL, {})
    assert ended == [True]


async def test_errors_of_send_leave_unchanged(anyio_backend: str) -> None:
    """The room classifies nothing: the very exception of the tool arrives, from threads too."""
    error = ValueError("boom")

    @tool()
    async def fails(call: Call) -> None:
        raise error

    @tool()
    def fails_blocking(call: Call) -> None:
        raise error

    for made in (fails, fails_blocking):
        with pytest.raises(ValueError, match="boom") as caught:
            await made.bound.send(CALL, {})
        assert caught.value is error


async def test_missing_secret_means_not_sent(anyio_backend: str) -> None:
    """A secret among the arguments that cannot be found stops the send before it is entered."""
    entered: list[str] = []

    @tool()
    async def act(call: Call, token: SecretRef) -> None:
        entered.append(call.secret(token))

    arguments = {"token": SecretRef("EVSRC_TEST_NOT_SET")}
    with pytest.raises(NotSent, match="EVSRC_TEST_NOT_SET"):
        await act.bound.send(CALL, arguments)
    assert entered == []
    call = Call(key="a" * 64, marker="m", secrets=Secrets(lambda name: "value"))
    await act.bound.send(call, arguments)
    assert entered == ["value"]


async def test_no_verdict_is_undetermined(anyio_backend: str) -> None:
    """Without a probe, or with one that returns no verdict, nothing is known, and it says why."""

    @tool()
    async def silent(call: Call) -> None: ...

    @tool()
    async def odd(call: Call) -> None: ...

    async def returns_none(call: Call) -> Any:
        return None

    odd.probe(returns_none)
    assert await silent.bound.probe(CALL, {}) == Undetermined("tool 'silent' declares no probe")
    verdict = await odd.bound.probe(CALL, {})
    assert isinstance(verdict, Undetermined)
    assert "NoneType" in verdict.reason


async def test_sweep_always_ends_explicitly(anyio_backend: str) -> None:
    """A sweep that does not say it was complete counts as cut; nothing after its end is read."""
    found = Found("m", "1")

    @tool()
    async def open_end(call: Call) -> None: ...

    @open_end.sweep
    async def _(since: datetime) -> AsyncIterator[Found | SweepEnd]:
        yield found

    @tool()
    def blocking(call: Call) -> None: ...

    @blocking.sweep
    def _(since: datetime) -> Iterator[Found | SweepEnd]:
        assert since == NOW
        yield found
        yield SweepEnd(complete=True)
        yield found

    first, last = await swept(open_end)
    assert first == found
    assert isinstance(last, SweepEnd)
    assert not last.complete
    assert await swept(blocking) == [found, SweepEnd(complete=True)]


async def test_sweep_of_something_else_is_refused(anyio_backend: str) -> None:
    """A sweep that yields no Found, and a tool without one, are reported as wrongly declared."""

    @tool()
    async def odd(call: Call) -> None: ...

    async def strings(since: datetime) -> AsyncIterator[Any]:
        yield "m"

    with pytest.raises(DefinitionError, match="no sweep"):
        await swept(odd)
    odd.sweep(strings)
    with pytest.raises(DefinitionError, match="str"):
        await swept(odd)
    with pytest.raises(DefinitionError, match="no undo"):
        await odd.bound.undo(CALL, None)


async def test_decorated_coroutine_functions_are_awaited(anyio_backend: str) -> None:
    """A plain wrapper that hands back a coroutine gives its result, not the coroutine."""

    async def inner(call: Call) -> int:
        return 7

    def wrapper(call: Call) -> Any:
        return inner(call)

    assert await tool()(wrapper).bound.send(CALL, {}) == 7


def test_instance_comes_from_the_object() -> None:
    """The instance is the object's, checked when the tool is read from it."""
    assert Adapter("tenant").act.instance == "tenant"
    adapter = Adapter()
    adapter.instance = 7  # type: ignore[assignment]
    with pytest.raises(DefinitionError, match="string"):
        _ = adapter.act
    with pytest.raises(LimitExceeded, match="100"):
        _ = Adapter("x" * 101).act


def test_absent_is_a_verdict() -> None:
    """Each verdict of a probe passes as it is."""

    @tool()
    async def act(call: Call) -> None: ...

    @act.probe
    async def _(call: Call) -> Verdict[None]:
        return Absent(complete=True)

    assert anyio.run(act.bound.probe, CALL, {}) == Absent(complete=True)
