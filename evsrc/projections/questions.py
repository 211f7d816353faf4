"""Open questions: what a log waits for a human to say, over all runs, also ended ones.

Rule: a question is open until an answer that fits; an answer that does not fit changes nothing.
Does not know: who may answer, or what follows from an answer (core/decide.py).
"""

import msgspec

from evsrc.core.events import IntentRecorded, QuestionAnswered, QuestionAsked
from evsrc.projections.base import Seen


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `text` and `evidence` may hold text that an attacker wrote."""

    run: str
    question: str
    kind: str
    subject: str
    """Id of the call, or the node (with its item in brackets), that it is about."""
    tool: str = ""
    """The call's tool; empty for a question about a node."""
    text: str
    evidence: str = ""
    attempt: int = 0
    since_ns: int
    """Wall time of the record that asked, in ns since 1970."""
    expires_ns: int | None = None


class OpenQuestions:
    """Every open question of a log."""

    def __init__(self) -> None:
        # By run as well: one question about a node that two runs share has one id in both.
        self._open: dict[tuple[str, str], OpenQuestion] = {}
        self._tools: dict[tuple[str, str], str] = {}

    def apply(self, seen: Seen, /) -> None:
        """Take in one event."""
        match seen.event:
            case IntentRecorded() as intent:
                self._tools[seen.run, intent.call] = intent.tool
            case QuestionAsked() as asked:
                self._open.pop((seen.run, asked.question), None)
                self._open[seen.run, asked.question] = self._row(seen, asked)
            case QuestionAnswered() as answer if answer.fits:
                self._open.pop((seen.run, answer.question), None)
            case _:
                pass

    def rows(self, run: str | None = None) -> list[OpenQuestion]:
        """Open questions, oldest first, optionally of one run."""
        return [row for row in self._open.values() if run in (None, row.run)]

    def _row(self, seen: Seen, asked: QuestionAsked) -> OpenQuestion:
        return OpenQuestion(
            run=seen.run,
            question=asked.question,
            kind=asked.kind,
            subject=asked.subject,
            tool=self._tools.get((seen.run, asked.subject), ""),
            text=asked.text,
            evidence=asked.evidence,
            attempt=asked.attempt,
            since_ns=seen.time_ns,
            expires_ns=asked.expires_ns,
        )
