"""Replay first, then live: random trees of concurrent tasks, logs cut anywhere, other delays each time.

The first run is simulated by a random scheduler and writes a log; the log is cut; the same program runs
again on a real event loop behind the real `ReplayQueue`. Its tasks branch on what they saw so far, so
that a wrong order of hand-outs asks for other calls than the recorded ones.
"""

import contextlib
from collections.abc import Sequence
from random import Random

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsrc.core.events import (
    CallRejected,
    ErrorData,
    Event,
    OutcomeUnknown,
    ResultRecorded,
    StepRecorded,
    WaitAbandoned,
)
from evsrc.core.keys import step_id
from evsrc.core.replay import owed, recorded
from evsrc.core.state import fold
from evsrc.errors import DivergenceError
from evsrc.runtime.replay import ReplayQueue
from evsrc.testing.specification import RUN, intent

UNIT = ("node",)

STALL_S = 5.0
"""Far above any scheduling delay of a test: reaching it is a stall."""

BACKENDS = ["asyncio", "trio"]


class Step(msgspec.Struct):
    """One thing a task does: a call, a read, or several tasks at once."""

    kind: str
    idle: bool = False
    """Does the task do something of its own before it asks? Then it does not branch on the order."""
    tasks: "list[list[Step]]" = []


def program(random: Random, depth: int = 0) -> list[Step]:
    """A random tree of tasks."""
    steps: list[Step] = []
    for _ in range(random.randint(1, 4)):
        if depth < 2 and random.random() < 0.35:
            tasks = [program(random, depth + 1) for _ in range(random.randint(2, 3))]
            steps.append(Step("tasks", tasks=tasks))
        else:
            steps.append(Step(random.choice(["call", "read"]), random.random() < 0.3))
    return steps


def name_of(path: str, index: int, step: Step, *, direct: bool, seen: Sequence[str]) -> str:
    """What a task asks for: after an outcome it branches on how much everybody has seen."""
    branch = "" if step.idle or not direct else "ab"[len(seen) % 2]
    return f"{step.kind} {path}/{index}{branch}"


def id_of(name: str) -> str:
    """The id of a call is its name here; that of a read is derived."""
    return step_id(RUN, UNIT, name, "", 1) if name.startswith("read") else name


class FirstRun:
    """The first execution, by a random scheduler, as the log it writes."""

    def __init__(self, steps: list[Step], random: Random) -> None:
        self.random = random
        self.log: list[Event] = []
        self.seen: list[str] = []
        self._ready: list[_Task] = [_Task("", steps, None)]
        self._in_flight: list[tuple[_Task, str]] = []
        while self._ready or self._in_flight:
            pick = random.randrange(len(self._ready) + len(self._in_flight))
            if pick < len(self._ready):
                self._go_on(self._ready.pop(pick), direct=False)
            else:
                self._finish(*self._in_flight.pop(pick - len(self._ready)))

    def _go_on(self, task: "_Task", *, direct: bool) -> None:
        if task.index == len(task.steps):
            parent = task.parent
            if parent is not None:
                parent.children -= 1
                if not parent.children:
                    self._ready.append(parent)
            return
        step = task.steps[task.index]
        if direct and step.idle:
            self._ready.append(task)
            return
        task.index += 1
        if step.kind == "tasks":
            task.children = len(step.tasks)
            path = f"{task.path}/{task.index - 1}"
            self._ready += [_Task(f"{path}.{n}", t, task) for n, t in enumerate(step.tasks)]
            return
        name = name_of(task.path, task.index - 1, step, direct=direct, seen=self.seen)
        if step.kind == "call":
            self.log.append(intent(call=name, scope=UNIT, tool=name))
        self._in_flight.append((task, name))

    def _finish(self, task: "_Task", name: str) -> None:
        self.log.append(self._outcome(name))
        self.seen.append(name)
        self._go_on(task, direct=True)

    def _outcome(self, name: str) -> Event:
        error, bad = ErrorData("Error", name), self.random.random() < 0.3
        if name.startswith("read"):
            value = None if bad else name.encode()
            return StepRecorded(
                UNIT, name, "args", ordinal=1, value=value, error=error if bad else None
            )
        return CallRejected(name, 1, error) if bad else ResultRecorded(name, 1, name.encode())


class _Task:
    def __init__(self, path: str, steps: list[Step], parent: "_Task | None") -> None:
        self.path, self.steps, self.parent = path, steps, parent
        self.index = 0
        self.children = 0


class Resume:
    """The same program behind a replay queue, on an event loop, with delays of its own."""

    def __init__(self, log: Sequence[Event], random: Random) -> None:
        self.random = random
        state = fold(RUN, log)
        self.owed = owed(state, UNIT)
        self.order = [r.id for r in recorded(state, UNIT)]
        self.queue = ReplayQueue(recorded(state, UNIT), self.owed, STALL_S)
        self.seen: list[str] = []
        self.handed: list[str] = []
        self.asked: set[str] = set()
        self.live: list[str] = []

    async def task(self, path: str, steps: list[Step]) -> None:
        await self.delay()
        direct = False
        for index, step in enumerate(steps):
            if step.kind == "tasks":
                async with anyio.create_task_group() as group:
                    for n, one in enumerate(step.tasks):
                        group.start_soon(self.task, f"{path}/{index}.{n}", one)
                direct = False
                continue
            if step.idle:
                await self.delay()
            name = name_of(path, index, step, direct=direct, seen=self.seen)
            await self.ask(name)
            direct = True

    async def ask(self, name: str) -> None:
        id_ = id_of(name)
        self.asked.add(id_)
        if self.queue.asked(id_) is not None:
            await self.queue.turn(id_)
            self.queue.handed_out(id_)
            self.handed.append(id_)
        else:
            await self.queue.live()
            assert self.handed == self.order, f"live before replay was over: {name}"
            assert self.asked >= self.owed.keys(), f"live before all was asked for: {name}"
            self.live.append(name)
            await self.delay()
        self.seen.append(name)

    async def delay(self) -> None:
        for _ in range(self.random.choice([0, 0, 1, 2, 5])):
            await anyio.lowlevel.checkpoint()


def resume(steps: list[Step], log: Sequence[Event], random: Random, backend: str) -> Resume:
    """Run to the end; everything recorded came back to its own call, in order."""
    run = Resume(log, random)
    anyio.run(run.task, "", steps, backend=backend)
    assert run.handed == run.order
    assert run.queue.missing == {}
    assert len(run.seen) == len(run.handed) + len(run.live)
    return run


@pytest.mark.parametrize("backend", BACKENDS)
@given(random=st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_replay_first_then_live_never_stalls_and_never_mixes(backend: str, random: Random) -> None:
    """Whatever the tree, the cut and the delays: each outcome to its own call, live work only after."""
    steps = program(random)
    first = FirstRun(steps, random)
    log = first.log[: random.randint(0, len(first.log))]
    run = resume(steps, log, random, backend)
    if len(log) == len(first.log):
        assert run.live == []
        assert run.seen == first.seen


@pytest.mark.parametrize("backend", BACKENDS)
def test_H13_parallel_calls_are_not_numbered_by_the_scheduler(backend: str) -> None:
    """Three unlike calls at once, killed after any subset of results, 200 resumes: no order error."""
    steps = [Step("tasks", tasks=[[Step("call")], [Step("call")], [Step("call")]])]
    for seed in range(200):
        random = Random(seed)
        first = FirstRun(steps, random)
        log = first.log[: random.randint(0, len(first.log))]
        run = resume(steps, log, random, backend)
        results = [e for e in log if isinstance(e, ResultRecorded | CallRejected)]
        assert run.handed == [e.call for e in results]
        assert len(run.live) == 3 - len(results)


async def test_a_users_own_lock_stalls_and_nothing_is_sent(anyio_backend: str) -> None:
    """A lock held round the calls can contradict the log's order: blocked by name, never a wrong send."""
    log = [
        intent(call="call a", scope=UNIT),
        intent(call="call b", scope=UNIT),
        ResultRecorded("call b", 1, b"B"),
        ResultRecorded("call a", 1, b"A"),
    ]
    state = fold(RUN, log)
    queue = ReplayQueue(recorded(state, UNIT), owed(state, UNIT), 0.05)
    lock, sent, refused = anyio.Lock(), list[str](), list[str]()

    async def body(name: str) -> None:
        async with lock:
            try:
                queue.asked(name)
                await queue.turn(name)
            except DivergenceError as error:
                refused.append(str(error))
                raise
            queue.handed_out(name)

    async def sender() -> None:
        with contextlib.suppress(DivergenceError):
            await queue.live()
            sent.append("call c")

    with pytest.raises(BaseExceptionGroup):
        async with anyio.create_task_group() as group:
            group.start_soon(body, "call a")
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            group.start_soon(body, "call b")
            group.start_soon(sender)
    assert sent == []
    assert len(refused) == 1
    assert "lock of your own" in refused[0]


async def test_a_call_that_is_not_asked_for_again_blocks_live_work(anyio_backend: str) -> None:
    """A recorded call that the code leaves out is divergence, named, before anything new is sent."""
    state = fold(RUN, [intent(call="call a", scope=UNIT), OutcomeUnknown("call a", 1, "crash")])
    queue = ReplayQueue(recorded(state, UNIT), owed(state, UNIT), 0.05)
    assert queue.asked("call b") is None
    with pytest.raises(DivergenceError, match="open_ticket #1 in node"):
        await queue.live()
    assert list(queue.missing) == ["call a"]
    queue.asked("call a")
    await queue.live()


async def test_a_recorded_give_up_keeps_its_place(anyio_backend: str) -> None:
    """What came after it in the log is handed out after it."""
    log = [
        intent(call="call a", scope=UNIT),
        WaitAbandoned("call a", 0.1, UNIT, "open_ticket"),
        StepRecorded(UNIT, "read", "args", ordinal=1, value=b"v"),
    ]
    state = fold(RUN, log)
    queue = ReplayQueue(recorded(state, UNIT), owed(state, UNIT), STALL_S)
    given_up = queue.asked("call a")
    assert given_up is not None
    assert (given_up.kind, given_up.waited_s) == ("abandoned", 0.1)
    order: list[str] = []

    async def reader() -> None:
        queue.asked(id_of("read"))
        await queue.turn(id_of("read"))
        order.append("read")
        queue.handed_out(id_of("read"))

    async with anyio.create_task_group() as group:
        group.start_soon(reader)
        await anyio.sleep(0.01)
        order.append("gave up")
        queue.handed_out("call a")
    assert order == ["gave up", "read"]
    await queue.live()


async def test_nothing_recorded_is_live_at_once(anyio_backend: str) -> None:
    """A first run waits for nothing."""
    queue = ReplayQueue([], {})
    assert queue.asked("call a") is None
    with anyio.fail_after(1):
        await queue.live()
        await queue.turn("call a")
