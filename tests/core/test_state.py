"""evolve and fold: deterministic, one step at a time, and total over the closed union of events."""

import typing
from collections.abc import Sequence
from copy import deepcopy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core import events as all_events
from evsrc.core.calls import CallState, Done, Skipped
from evsrc.core.codec import decode_events, encode_events
from evsrc.core.events import (
    CallAccepted,
    CallNotSent,
    CallRejected,
    CancelRequested,
    ErrorData,
    Event,
    EvidenceAdded,
    IntentReconciled,
    IntentRecorded,
    NodeFailed,
    NodeOutput,
    NodeStarted,
    OutcomeUnknown,
    QuestionAnswered,
    QuestionAsked,
    ResultRecorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunReopened,
    RunStarted,
    SignalReceived,
    StepRecorded,
    SweepRecorded,
    WaitAbandoned,
)
from evsrc.core.state import RunState, evolve, fold, node_scope
from evsrc.testing.specification import RUN, evolve_all

EVENT_TYPES: tuple[type[msgspec.Struct], ...] = typing.get_args(Event)

ERROR = ErrorData("ValueError", "bad")
CALLS = ["c1", "c2"]
SCOPES = [("n1",), ("n1", "item:x"), ("n2",), ()]

calls, attempts = st.sampled_from(CALLS), st.integers(1, 3)
scopes, nodes = st.sampled_from(SCOPES), st.sampled_from(["n1", "n2"])
keys_, items = st.sampled_from(["k1", "k2"]), st.sampled_from(["", "x"])
values = st.sampled_from([None, b"v", b"w"])
questions = st.sampled_from(["q1", "q2"])


def _intent(call: str, attempt: int, scope: tuple[str, ...], asked: str) -> Event:
    return IntentRecorded(call, attempt, "tool", "key", "m", scope, b"", b"", asked)


EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(_intent, calls, attempts, scopes, st.sampled_from(["d1", "d2"])),
    st.builds(ResultRecorded, calls, attempts, values),
    st.builds(CallRejected, calls, attempts, st.just(ERROR)),
    st.builds(CallNotSent, calls, attempts, st.just(ERROR), st.booleans()),
    st.builds(CallAccepted, calls, attempts),
    st.builds(OutcomeUnknown, calls, attempts, st.sampled_from(["crash", "timeout"])),
    st.builds(
        IntentReconciled,
        calls,
        attempts,
        st.sampled_from(["happened", "absent", "skipped"]),
        st.sampled_from(["probe", "human:ada"]),
        values,
    ),
    st.builds(EvidenceAdded, calls, attempts, st.just("s"), st.just("d"), st.booleans()),
    st.builds(NodeStarted, nodes, keys_, attempts, items),
    st.builds(NodeOutput, nodes, keys_, st.just(b"o"), st.just("od"), attempts, items),
    st.builds(NodeFailed, nodes, keys_, attempts, st.just(ERROR), items),
    st.builds(
        StepRecorded, scopes, st.sampled_from(["r1", "r2"]), st.just("a"), value=st.just(b"v")
    ),
    st.builds(WaitAbandoned, calls, st.just(1.0), scopes),
    st.builds(
        QuestionAsked, questions, st.just("unknown"), st.sampled_from([*CALLS, "n1"]), st.just("t")
    ),
    st.builds(
        QuestionAnswered,
        questions,
        st.just("ada"),
        st.sampled_from(["resend", "keep", "absent"]),
        message=st.sampled_from(["", "m1"]),
        fits=st.booleans(),
    ),
    st.sampled_from(
        [
            RunStarted("w", "1", b"", "d"),
            RunCompleted(b"o"),
            RunFailed(ERROR),
            RunCancelled(),
            RunReopened("ada"),
            CancelRequested("ada"),
            SignalReceived("s", b"", "m2"),
            SweepRecorded("t", "", True, ("o1",)),
        ]
    ),
)

LOGS = st.lists(EVENTS, max_size=40)


@given(LOGS, LOGS)
def test_fold_of_two_parts_is_evolving_the_first_with_the_second(
    a: Sequence[Event], b: Sequence[Event]
) -> None:
    """Reading a whole log, and reading a part and living through the rest, give the same state."""
    assert fold(RUN, [*a, *b]) == evolve_all(fold(RUN, a), b)


@given(LOGS)
def test_fold_depends_on_the_events_only(log: Sequence[Event]) -> None:
    """The same events, also after the way through bytes, give an equal state; each counts once."""
    state = fold(RUN, log)
    assert state == fold(RUN, log)
    assert state == fold(RUN, decode_events(encode_events(log)))
    assert state.events == len(log)


@given(LOGS)
def test_folds_share_nothing(log: Sequence[Event]) -> None:
    """A state that goes on changes no other state, and none of the events it was made of."""
    before = encode_events(log)
    one, other = fold(RUN, log), fold(RUN, log)
    snapshot = deepcopy(other)
    evolve_all(one, log)
    assert other == snapshot
    assert encode_events(log) == before


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda k: k.__name__)
def test_every_event_evolves_an_empty_state(kind: type[msgspec.Struct]) -> None:
    """No event needs another one before it: a gap, or a log of a later feature, stops no fold."""
    state = evolve(RunState(RUN), _example(kind))
    assert state.events == 1
    assert state.calls == {} or kind is IntentRecorded


def _example(kind: type[msgspec.Struct]) -> Event:
    """An event of that type with whatever its required fields take."""
    hints = typing.get_type_hints(kind, vars(all_events))
    required = [f for f in msgspec.structs.fields(kind) if f.required]
    return typing.cast(Event, kind(**{f.name: _value(hints[f.name]) for f in required}))


def _value(hint: typing.Any) -> typing.Any:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    plain = {str: "x", int: 1, bytes: b"x", bool: True, ErrorData: ERROR}
    return plain[hint] if hint in plain else ("x",)


@given(LOGS)
def test_the_first_settlement_of_every_attempt_stands(log: Sequence[Event]) -> None:
    """Once done or closed, an attempt never changes again, whatever comes later."""
    state = RunState(RUN)
    settled: dict[tuple[str, int, int], str] = {}
    for event in log:
        evolve(state, event)
        for call in state.calls.values():
            for place, attempt in enumerate(call.attempts):
                key = (call.id, place, attempt.number)
                assert settled.get(key, attempt.status) == attempt.status
                if attempt.status in ("done", "closed"):
                    settled[key] = attempt.status


@given(LOGS)
def test_an_outcome_never_changes_except_for_new_arguments(log: Sequence[Event]) -> None:
    """What user code was told stays: only an intent with other arguments begins a call anew."""
    state = RunState(RUN)
    told: dict[str, object] = {}
    for event in log:
        evolve(state, event)
        if isinstance(event, IntentRecorded) and state.calls[event.call].outcome is None:
            told.pop(event.call, None)
        for call in state.calls.values():
            assert told.get(call.id, call.outcome) == call.outcome
            if call.outcome is not None:
                told[call.id] = call.outcome


@given(LOGS)
def test_unknown_is_never_an_outcome_without_effect(log: Sequence[Event]) -> None:
    """A call that failed, or was never sent, has no attempt of which nobody knows what became."""
    for call in fold(RUN, log).calls.values():
        if call.outcome is not None and not isinstance(call.outcome, Done | Skipped):
            later = [a for a in call.attempts if a.order > call.outcome_order]
            assert call.open_attempts == [a for a in later if a in call.open_attempts]


@given(LOGS)
def test_derived_views_agree_with_the_calls(log: Sequence[Event]) -> None:
    """Unsettled calls, open questions and closed calls are what their parts say."""
    state = fold(RUN, log)
    assert state.unsettled == [c for c in state.calls.values() if c.unknown]
    assert {q.question for q in state.open_questions} == {
        id_ for id_, q in state.questions.items() if q.answered is None
    }
    for call in state.calls.values():
        assert not (call.without_effect and call.open_attempts)
        assert call.attempt(99) is None
        assert isinstance(call, CallState)


@given(LOGS)
def test_only_another_key_or_attempt_hides_reads(log: Sequence[Event]) -> None:
    """Reads disappear at a `NodeStarted` of their scope only, and never those of another scope."""
    state = RunState(RUN)
    for event in log:
        before = dict(state.reads)
        evolve(state, event)
        for read in [r for id_, r in before.items() if id_ not in state.reads]:
            assert isinstance(event, NodeStarted)
            scope = node_scope(event.node, event.item)
            assert read.event.scope[: len(scope)] == scope


def test_scopes_of_nodes_and_items() -> None:
    """A node's calls stand under its name, an item's under the item."""
    assert node_scope("n") == ("n",)
    assert node_scope("n", "x") == ("n", "item:x")
