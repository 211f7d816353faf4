"""`resolve`: a person's answer about a call of unknown outcome, or about a node.

Rule: with the lock free the answer is applied here, without running anything; while somebody else owns
the log it is dropped into the inbox, and the log tells what became of it. Either way it is one event.
Does not know: what follows from an answer.
"""

import os
import secrets
import time
from typing import Annotated, Any, Literal, TypeAlias

import anyio
import msgspec
from cyclopts import Parameter

from evsrc.cli import logs, render, statuses
from evsrc.cli.loading import loaded_tools
from evsrc.cli.logs import AsJson, LogDir, Subject
from evsrc.cli.statuses import UsageError
from evsrc.cli.unknown import ToolsAt
from evsrc.core.events import QuestionAnswered
from evsrc.errors import LogLocked
from evsrc.log.file.inbox import INBOX_NAME, REFUSED_NAME, drop
from evsrc.runtime import mailbox
from evsrc.runtime.runtime import open_runtime

WAIT_S = 5.0
"""How long the owner of the log is given: fifty looks into its inbox."""

POLL_S = 0.1

Word: TypeAlias = Literal["happened", "absent", "resend", "skip", "keep"]
Result: TypeAlias = Literal["applied", "does not fit", "refused", "waiting"]
Flag = Annotated[bool, Parameter(negative="")]


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an answer."""

    subject: str
    run: str
    answer: Word
    by: str
    result: Result
    why: str = ""


def resolve(
    call: str,
    /,
    *,
    by: Annotated[str, Parameter(help="Who answers; recorded.")],
    reason: Annotated[str, Parameter(help="Why; recorded.")],
    happened: Annotated[
        str | None, Parameter(help="It happened, with this result (JSON).", metavar="JSON")
    ] = None,
    absent: Annotated[Flag, Parameter(help="A complete look did not find it.")] = False,
    resend: Annotated[
        Flag, Parameter(help="Send it again, without waiting for late arrivals.")
    ] = False,
    skip: Annotated[Flag, Parameter(help="Go on without knowing.")] = False,
    keep: Annotated[
        Flag, Parameter(help="The act stands although what it rests on has changed.")
    ] = False,
    run: Annotated[str | None, Parameter(help="Look in this run only.")] = None,
    tools: ToolsAt = "",
    log: LogDir = logs.LOG_DEFAULT,
    json: AsJson = False,
) -> int:
    """Answer about a call of unknown outcome, or a question about a node.

    CALL is the id of a call or question, or the beginning of one. Exit status 1 if the answer does not
    fit, 3 if the owner of the log has not taken it within 5 s (it stays in the inbox).
    """
    flags: dict[Word, bool] = {"absent": absent, "resend": resend, "skip": skip, "keep": keep}
    answer, value = _answer(happened, flags)
    found, _ = logs.load_runs(log)
    subject = logs.find_subject(found, call, run)
    what = mailbox.Answer(subject.id, answer, by, reason, value)
    try:
        result = anyio.run(_apply, log, subject, what, tools)
    except LogLocked as locked:
        render.note(f"{locked}; the answer goes into its inbox")
        result = _leave(log, subject, what)
    if json:
        render.print_json(result)
    else:
        words = [f"{result.answer} by {result.by}: {result.result}", result.why]
        render.line(result.subject, *[word for word in words if word])
    return {"applied": statuses.OK, "waiting": statuses.QUESTIONS}.get(
        result.result, statuses.FAILED
    )


def _answer(happened: str | None, flags: dict[Word, bool]) -> tuple[Word, Any]:
    given: list[Word] = [word for word, said in flags.items() if said]
    if happened is not None:
        given.append("happened")
    if len(given) != 1:
        raise UsageError(
            "say exactly one of --happened JSON, --absent, --resend, --skip, --keep; "
            f"found {', '.join('--' + word for word in given) or 'none'}"
        )
    if happened is None:
        return given[0], None
    try:
        return "happened", msgspec.json.decode(happened)
    except msgspec.DecodeError as error:
        raise UsageError(f"--happened: no JSON ({error}); a text needs its quotes") from None


async def _apply(log: str, subject: Subject, answer: mailbox.Answer, spec: str) -> Resolved:
    """Raises LogLocked: somebody else owns the log."""
    async with (
        loaded_tools(spec) as tools,
        open_runtime(log, tools=tools, resume=False) as runtime,
    ):
        done = await runtime.answers.answer(
            subject.run,
            subject.id,
            answer.answer,
            by=answer.by,
            reason=answer.reason,
            value=answer.value,
        )
    return _resolved(subject, answer, _result(done.fits), done.why)


def _leave(log: str, subject: Subject, answer: mailbox.Answer) -> Resolved:
    """Leave the answer for the owner, and read the log until it shows there."""
    payload = msgspec.to_builtins(answer, builtin_types=(bytes,))
    message = mailbox.Message(secrets.token_hex(16), "answer", subject.run, payload, answer.by)
    after = _end(log)
    name = drop(log, mailbox.encode(message))
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        seen = _seen(log, subject.run, message.id, after)
        if seen is not None:
            return _resolved(subject, answer, _result(seen.fits), seen.why)
        if os.path.exists(os.path.join(log, INBOX_NAME, REFUSED_NAME, name)):
            return _resolved(subject, answer, "refused", "its owner's messages say why")
        time.sleep(POLL_S)
    why = f"not taken within {WAIT_S:g} s; whoever opens the log next applies it"
    return _resolved(subject, answer, "waiting", why)


def _seen(log: str, run: str, message: str, after: int) -> QuestionAnswered | None:
    for seen in logs.reader(log).events(run=run, types=[QuestionAnswered], after=after):
        if isinstance(seen.event, QuestionAnswered) and seen.event.message == message:
            return seen.event
    return None


def _result(fits: bool) -> Result:
    return "applied" if fits else "does not fit"


def _end(log: str) -> int:
    last = 0
    for record in logs.reader(log).records():
        last = record.position
    return last


def _resolved(
    subject: Subject,
    answer: mailbox.Answer,
    result: Result,
    why: str,
) -> Resolved:
    return Resolved(
        subject=subject.id,
        run=subject.run,
        answer=answer.answer,
        by=answer.by,
        result=result,
        why=why,
    )
