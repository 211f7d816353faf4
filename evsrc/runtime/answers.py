"""Answers of people: found, checked against the tool's result type, recorded, and waking their run.

Rule: an answer is an event before anything follows from it. One that does not fit is an event too, and
its question stays open.
Does not know: where an answer came from (a call in process, the inbox, the command line).
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from evsrc.core import people, runs
from evsrc.core.calls import CallState
from evsrc.core.codec import round_trip
from evsrc.core.state import QuestionState, RunState
from evsrc.errors import CallerError, UnusableValue
from evsrc.runtime.journal import Journal
from evsrc.runtime.services import Services

Verdict = Literal["happened", "absent", "resend", "skip", "keep"]


class UnknownSubject(CallerError, LookupError):
    """Raised when no call or question of the log has the id that was answered."""


class Answered(msgspec.Struct, frozen=True):
    """What became of an answer."""

    run_id: str
    fits: bool
    why: str = ""


class Answers:
    """Applies answers to the runs of one runtime."""

    def __init__(
        self,
        services: Services,
        journal: Callable[[str], Journal],
        woken: Callable[[str], None],
    ) -> None:
        self._services = services
        self._journal = journal
        self._woken = woken

    async def answer(
        self,
        run_id: str,
        subject: str,
        answer: Verdict,
        *,
        by: str,
        reason: str = "",
        value: Any = None,
        message: str = "",
    ) -> Answered:
        """Answer about a call (by call or question id) or a node (by question id) of a run.

        Args:
            answer: "happened" (with `value`, plain data), "absent" (a complete look, no more),
                "resend" (send again, without waiting for late arrivals), "skip" (go on without
                knowing), or "keep" (an act may rest on the older evidence).
            by: who answers; recorded.
            message: id of the inbox message, for deduplication.

        Raises:
            UnknownSubject: the run has no such call or question.
            OperatorError: the log refused.
        """
        journal = self._journal(run_id)
        state = journal.state
        if message and message in state.messages:
            return Answered(run_id, True, "seen before")
        call, question = find(state, subject)
        now_ns = self._services.clock.now_ns()
        if call is None:
            return await self._about_node(journal, question, answer, by, reason, message)
        if answer == "keep":
            return await self._misfit(
                journal, call.question, by, answer, "a call is not kept", message
            )
        if not call.open_attempts:
            return await self._misfit(
                journal, call.question, by, answer, "no attempt of it is open", message
            )
        try:
            data = self._value(call, value) if answer == "happened" else None
        except (UnusableValue, msgspec.ValidationError) as error:
            return await self._misfit(journal, call.question, by, answer, str(error), message)
        verdict = people.HumanVerdict(
            answer=answer, by=by, reason=reason, value=data, message=message
        )
        events = people.human_verdict(call, call.question, verdict, now_ns)
        await journal.append(events, durable=True, essential=True)
        self._woken(run_id)
        return Answered(run_id, True)

    def _value(self, call: CallState, value: Any) -> bytes:
        tool = self._services.tools.find(call.intent.tool, call.intent.instance)
        if tool is None:
            return round_trip(value, Any)[0]
        typed = msgspec.convert(value, tool.return_annotation, strict=False)
        return round_trip(typed, tool.return_annotation)[0]

    async def _about_node(
        self,
        journal: Journal,
        question: QuestionState | None,
        answer: Verdict,
        by: str,
        reason: str,
        message: str,
    ) -> Answered:
        if question is None:
            raise AssertionError("found is a call or a question")
        asked = question.asked
        if question.answered is not None:
            return Answered(journal.run_id, False, "answered before")
        if answer != "keep":
            why = f"a question about a node is answered by keep, not {answer}"
            return await self._misfit(journal, asked.question, by, answer, why, message)
        event = runs.answer_pinned(
            asked,
            "keep",
            by,
            reason=reason,
            message=message,
            now_ns=self._services.clock.now_ns(),
        )
        await journal.append([event], durable=True, essential=True)
        self._woken(journal.run_id)
        return Answered(journal.run_id, True)

    async def _misfit(
        self, journal: Journal, question: str, by: str, answer: str, why: str, message: str
    ) -> Answered:
        event = runs.misfit(
            question, by, answer, why, message=message, now_ns=self._services.clock.now_ns()
        )
        await journal.append([event], durable=True, essential=True)
        return Answered(journal.run_id, False, why)


def find(state: RunState, subject: str) -> tuple[CallState | None, QuestionState | None]:
    """The call or question with that id. Raises UnknownSubject."""
    call = state.calls.get(subject)
    question = state.questions.get(subject)
    if call is None and question is not None:
        call = state.calls.get(question.asked.subject)
    if call is None and question is None:
        raise UnknownSubject(f"run {state.run_id!r} has no call or question {subject!r}")
    return call, question
