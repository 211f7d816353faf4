"""Deciding about runs: starting, joining, ending, answering questions that are not about a call.

Rule: a run id names one workflow and one input for ever. A terminal event ends the workflow, not its
calls: it lists the open ones.
Does not know: who waits for a run, or which code it needs.
"""

from typing import Literal

from evsrc.core.events import (
    ErrorData,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from evsrc.core.state import RunState
from evsrc.errors import InputMismatch


def start(state: RunState, event: RunStarted) -> tuple[Event, ...]:
    """The events that start this run; empty if it exists already and is joined.

    Raises:
        InputMismatch: the id stands for another workflow or another input.
    """
    known = state.started
    if known is None:
        return (event,)
    if known.workflow != event.workflow:
        raise InputMismatch(
            f"run {state.run_id!r} belongs to workflow {known.workflow!r}, not "
            f"{event.workflow!r}; nothing was started. Use another run id."
        )
    if known.input_digest != event.input_digest:
        raise InputMismatch(
            f"run {state.run_id!r} was started with another input (digest "
            f"{known.input_digest[:12]}, now {event.input_digest[:12]}); nothing was started. "
            "Use another run id."
        )
    return ()


def open_calls(state: RunState) -> tuple[str, ...]:
    """Ids of the calls whose outcome is unknown."""
    return tuple(call.id for call in state.unsettled)


def complete(state: RunState, output: bytes) -> Event:
    """The event that completes the run."""
    return RunCompleted(output, open_calls(state))


def fail(state: RunState, error: ErrorData) -> Event:
    """The event that fails the run."""
    return RunFailed(error, open_calls(state))


def cancel(state: RunState) -> Event:
    """The event that ends a cancelled run."""
    return RunCancelled(open_calls(state))


def answer_pinned(
    question: QuestionAsked,
    answer: Literal["keep"],
    by: str,
    *,
    reason: str = "",
    message: str = "",
    now_ns: int,
) -> Event:
    """The event of a person who lets an act stand on older evidence."""
    return QuestionAnswered(question.question, by, answer, None, reason, message, at_ns=now_ns)


def misfit(
    question: str, by: str, answer: str, why: str, *, message: str = "", now_ns: int
) -> Event:
    """The event of an answer that does not fit: kept, the question stays open."""
    return QuestionAnswered(
        question, by, answer, None, "", message, fits=False, why=why, at_ns=now_ns
    )
