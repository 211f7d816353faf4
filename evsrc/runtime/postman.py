"""The postman: carries messages from a file log's inbox to the runs, for as long as the log is open.

Rule: a message's file goes only after what it caused is durable; a message that cannot be read is moved
aside, never deleted, and never stops the others.
Does not know: what an answer or a start means.
"""

from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec

from evsrc.errors import CallerError, UnknownEvent
from evsrc.log.file.inbox import Inbox
from evsrc.log.file.log import FileLog
from evsrc.runtime import mailbox
from evsrc.runtime.answers import UnknownSubject

if TYPE_CHECKING:
    from evsrc.runtime.runtime import Runtime


# Nesting without end raises RecursionError, a number beyond 64 bits OverflowError. UnknownEvent: the run
# needs a later version. Anything else is about our own log, and stops the runtime.
_REFUSED = (
    msgspec.MsgspecError,
    CallerError,
    KeyError,
    RecursionError,
    OverflowError,
    UnknownEvent,
)


class Postman:
    """Polls one inbox."""

    def __init__(self, log: FileLog, runtime: "Runtime") -> None:
        self._inbox = Inbox(log.path)
        self._runtime = runtime

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            for name, data in await anyio.to_thread.run_sync(self._inbox.list):
                await self._deliver(name, data)
            await anyio.sleep(mailbox.POLL_S)

    async def _deliver(self, name: str, data: bytes) -> None:
        try:
            message = mailbox.decode(data)
            await self._apply(message)
        except _REFUSED as error:
            import logging

            logging.getLogger("evsrc").warning("inbox message refused: %s", type(error).__name__)
            await anyio.to_thread.run_sync(self._inbox.refuse, name)
            return
        await anyio.to_thread.run_sync(self._inbox.done, name)

    async def _apply(self, message: mailbox.Message) -> None:
        if message.kind == "start":
            start = msgspec.convert(message.payload, mailbox.Start)
            await self._runtime.start_by_name(start.workflow, start.input, message.run or None)
            return
        answer = msgspec.convert(message.payload, mailbox.Answer)
        if message.run not in self._runtime.run_ids:
            raise UnknownSubject(f"no run {message.run!r}")
        await self._runtime.answers.answer(
            message.run,
            answer.subject,
            answer.answer,
            by=answer.by,
            reason=answer.reason,
            value=answer.value,
            message=message.id,
        )
