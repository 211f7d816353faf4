"""Given, when, then: rules of the core as sentences over events, without any I/O.

Rule: given events are folded, a command is one pure function of the state, and what comes out is
compared whole. A story goes on by folding what came out. Plain asserts, no pytest needed.
Does not know: logs, tools, time. A specification never waits and never writes.

    given(intent(1), OutcomeUnknown(CALL, 1, "crash"))
        .when(next_action(marked()))
        .then(LookAtTool(1))

`given(...)` takes events and `when(...)` any function of a `RunState`; the commands below cover the
decisions about one call, called `CALL` in all of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from evsrc.core import decide, people, reports
from evsrc.core.calls import CallState
from evsrc.core.events import Event, EventBase, IntentRecorded
from evsrc.core.settle import Look
from evsrc.core.state import RunState, evolve, fold
from evsrc.core.verdicts import AnyVerdict, Capabilities, Effect

T = TypeVar("T")

RUN = "run-1"
"""Id of the run that every specification is about."""

CALL = "c-the-call"
"""Id of the call that the commands below are about."""

SECOND_NS = 1_000_000_000

START_NS = 1_700_000_000 * SECOND_NS
"""The wall time at which a specification's first intent is recorded, unless it says otherwise."""


class Given:
    """A run as its events left it."""

    def __init__(self, *events: Event, run_id: str = RUN) -> None:
        self.events: tuple[Event, ...] = events
        self.state: RunState = fold(run_id, events)

    @property
    def call(self) -> CallState:
        """The call that the specification is about. Raises KeyError if no intent of it was given."""
        return self.state.calls[CALL]

    def when(self, command: Callable[[RunState], T]) -> "When[T]":
        """Ask one pure function of the state. An error it raises is kept for `then_raises`."""
        try:
            return When(self, command(self.state), None)
        except Exception as error:  # noqa: BLE001  kept, and raised by every `then` that expects none
            return When(self, None, error)

    def and_then(self, *events: Event) -> "Given":
        """The same run, some events later."""
        return Given(*self.events, *events, run_id=self.state.run_id)


class When(Generic[T]):
    """What a command answered: compare it, or let the story go on with it."""

    def __init__(self, given_: Given, answer: T | None, error: Exception | None) -> None:
        self._given = given_
        self._answer = answer
        self._error = error

    @property
    def answer(self) -> T:
        """The answer itself. Raises what the command raised."""
        if self._error is not None:
            raise self._error
        return cast(T, self._answer)  # None is an answer where T allows it

    def then(self, *expected: Any) -> "Given":
        """The answer is exactly this: one value, or the events of a record in order.

        Returns the run after the events of the answer, if it holds any.
        """
        events = events_of(self.answer)
        found: tuple[Any, ...] = events or (self.answer,)
        if not events and self.answer == ():
            found = ()
        assert found == expected, f"expected {expected!r}\nfound    {found!r}"
        return self.goes_on()

    def then_is(self, kind: type[Any], /, **fields: Any) -> "Given":
        """The answer is of this kind, and has these fields; others are not looked at."""
        one: Any = next(iter(events_of(self.answer)), self.answer)
        assert isinstance(one, kind), f"expected {kind.__name__}\nfound    {one!r}"
        for name, value in fields.items():
            assert getattr(one, name) == value, f"expected {name}={value!r}\nfound    {one!r}"
        return self.goes_on()

    def then_raises(self, kind: type[Exception], /, *parts: str) -> "Given":
        """The command refuses with this error, whose message holds every one of `parts`."""
        assert isinstance(self._error, kind), (
            f"expected {kind.__name__}\nfound    {self._error or self._answer!r}"
        )
        for part in parts:
            assert part in str(self._error), f"expected {part!r} in\n{self._error}"
        return self._given

    def goes_on(self) -> Given:
        """The run after the events of the answer; the same run if the answer is an action to perform."""
        return self._given.and_then(*events_of(self.answer))


given = Given


def events_of(answer: Any) -> tuple[Event, ...]:
    """The events that an answer asks to append: of `Append`, of a sequence, or of one event."""
    if isinstance(answer, decide.Append):
        return answer.events
    if isinstance(answer, EventBase):
        return (cast(Event, answer),)  # every subclass of the base is in the closed union
    if not isinstance(answer, tuple | list):
        return ()
    several = tuple(cast("list[Any]", answer))
    return several if all(isinstance(e, EventBase) for e in several) else ()


# ---- commands about the call ---------------------------------------------------------------------


def next_action(
    caps: Capabilities,
    *,
    now_s: float = 0.0,
    verdict: AnyVerdict | None = None,
    looked_after_s: float = 0.0,
    **situation: Any,
) -> Callable[[RunState], decide.Action]:
    """What is owed for the call, `now_s` seconds of wall time after START_NS.

    `verdict` is what the newest look saw, begun `looked_after_s` after the last possible departure.
    Further keywords are those of `Situation`; `looks` and `waited_s` follow from the look if unset.
    """
    look = None if verdict is None else Look(verdict, looked_after_s)
    situation.setdefault("looks", 0 if look is None else 1)
    situation.setdefault("waited_s", looked_after_s)
    at = decide.Situation(now_ns=START_NS + round(now_s * SECOND_NS), look=look, **situation)
    return lambda state: decide.next_action(state.calls.get(CALL), caps, at)


def after_send(
    attempt: int, report: reports.SendReport, caps: Capabilities, *, now_s: float = 0.0
) -> Callable[[RunState], tuple[Event, ...]]:
    """What the report of one send makes true."""
    now_ns = START_NS + round(now_s * SECOND_NS)
    return lambda state: reports.after_send(state.calls[CALL], attempt, report, caps, now_ns)


def human(
    answer: Any, by: str = "ada", *, value: bytes | None = None, reason: str = "", message: str = ""
) -> Callable[[RunState], tuple[Event, ...]]:
    """A person answers about the call: happened, absent, resend or skip."""
    verdict = people.HumanVerdict(answer=answer, by=by, value=value, reason=reason, message=message)

    def command(state: RunState) -> tuple[Event, ...]:
        call = state.calls[CALL]
        return people.human_verdict(call, call.question, verdict, START_NS)

    return command


def intent(attempt: int = 1, *, at_s: float = 0.0, asked: str = "asked-1", **fields: Any) -> Event:
    """An intent of the call, `at_s` seconds after START_NS; `asked` is the digest of its arguments."""
    plain = IntentRecorded(
        CALL,
        attempt,
        "open_ticket",
        "key-1",
        "evsrc-marker",
        ("ticket",),
        b"asked",
        b"sent",
        asked,
        ordinal=1,
        at_ns=START_NS + round(at_s * SECOND_NS),
    )
    return msgspec.structs.replace(plain, **fields)


# ---- tools ---------------------------------------------------------------------------------------


def caps(effect: Effect, **declared: Any) -> Capabilities:
    """A tool of that effect that declares what is given, and nothing else."""
    return Capabilities(effect=effect, **declared)


def marked(**declared: Any) -> Capabilities:
    """A MARKED tool that declares everything: 5 s of lag, 2 s of lateness, history, a probe."""
    known: dict[str, Any] = {"lag_s": 5.0, "late_s": 2.0, "history": True, "can_probe": True}
    return Capabilities(effect=Effect.MARKED, **{**known, **declared})


def keyed(**declared: Any) -> Capabilities:
    """A KEYED tool that remembers keys for 100 s, with a time-out of 10 s and 5 s of lateness."""
    known: dict[str, Any] = {"window_s": 100.0, "timeout_s": 10.0, "late_s": 5.0}
    return Capabilities(effect=Effect.KEYED, **{**known, **declared})


def evolve_all(state: RunState, events: Sequence[Event]) -> RunState:
    """`state` after `events`, one at a time, as a journal does it."""
    for event in events:
        evolve(state, event)
    return state
