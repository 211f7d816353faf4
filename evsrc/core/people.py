"""People: what a person says of a call, as events, and the question that asks for it.

Rule: an answer is recorded as given, by whom, and why. A person's "absent" is a complete look, no more.
Does not know: how an answer arrives, or what is done next (core/decide.py).
"""

from typing import Literal

import msgspec

from evsrc.core import keys
from evsrc.core.calls import CallState
from evsrc.core.events import Event, IntentReconciled, QuestionAnswered, QuestionAsked


class HumanVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says of a call. `value` is msgpack, set with happened only."""

    answer: Literal["happened", "absent", "resend", "skip"]
    by: str
    reason: str = ""
    value: bytes | None = None
    message: str = ""
    """Id of the inbox message, for deduplication."""


def human_verdict(
    call: CallState, question: str, verdict: HumanVerdict, now_ns: int
) -> tuple[Event, ...]:
    """The events of a person's verdict on every open attempt of a call; the question's answer first.

    Where nothing was asked (an empty `question`), what the person answered is recorded as a question.
    """
    unasked: tuple[Event, ...] = ()
    if not question and call.attempts:
        asked = question_about(
            call, "unknown", f"answered by {verdict.by} before it was asked", now_ns
        )
        question, unasked = asked.question, (asked,)
    answered = QuestionAnswered(
        question,
        verdict.by,
        verdict.answer,
        verdict.value,
        verdict.reason,
        verdict.message,
        at_ns=now_ns,
    )
    by = f"human:{verdict.by}"
    reconciled: list[Event] = []
    for attempt in call.open_attempts:
        match verdict.answer:
            case "happened":
                reconciled.append(
                    IntentReconciled(
                        call.id,
                        attempt.number,
                        "happened",
                        by,
                        value=verdict.value,
                        evidence=verdict.reason,
                        at_ns=now_ns,
                    )
                )
                break  # one effect: the other attempts stay what they are
            case "absent":
                reconciled.append(
                    IntentReconciled(
                        call.id,
                        attempt.number,
                        "absent",
                        by,
                        evidence=verdict.reason,
                        at_ns=now_ns,
                    )
                )
            case "skip":
                reconciled.append(
                    IntentReconciled(
                        call.id,
                        attempt.number,
                        "skipped",
                        by,
                        why=verdict.reason,
                        at_ns=now_ns,
                    )
                )
                break
            case "resend":
                break  # the attempts stay unknown; the answer itself allows the next one
    return (*unasked, answered, *reconciled)


def question_about(
    call: CallState,
    kind: Literal["unknown", "conflict"],
    why: str,
    now_ns: int,
    evidence: str = "",
) -> QuestionAsked:
    number = (call.open_attempts or call.attempts)[-1].number
    return QuestionAsked(
        keys.question_id(call.id, kind, str(number)),
        kind,
        call.id,
        f"Did attempt {number} of {call.intent.tool} happen? {why}.",
        digest=call.intent.asked_digest,
        attempt=number,
        evidence=evidence,
        at_ns=now_ns,
    )
