"""Child processes of the cases that are killed for real: a desk in a file, one workflow per case.

The file of rows is the outside world. A tool that was told to stop does so right after its row is
written, before any answer; the parent then kills the process.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec

import evsrc
from evsrc.errors import StepFailed
from evsrc.testing.crash import CrashObserver


class Setup(msgspec.Struct, frozen=True):
    """What a child runs. `stop`: the tool that stops once its row is written, empty for none."""

    case: str
    folder: str
    stop: str = ""
    fault: str = ""
    backend: str = "asyncio"


class FileDesk:
    """Tools whose effects are lines of a file."""

    def __init__(self, setup: Setup, observer: CrashObserver) -> None:
        self.setup = setup
        self.observer = observer
        self.rows = Path(setup.folder) / "rows"
        self.asked = Path(setup.folder) / "asked"

    def commit(self, tool: str, marker: str, text: str) -> str:
        """One effect: a line, then perhaps the end of the process."""
        _append(self.rows, f"{tool} {marker} {text}")
        if self.setup.stop == tool:
            self.observer.stop_here()
        if self.setup.fault == "drop":
            raise ConnectionResetError("connection reset after the request")
        return f"{tool}-{len(self.found(marker))}"

    def found(self, marker: str) -> list[str]:
        """The rows with that marker."""
        text = self.rows.read_text() if self.rows.exists() else ""
        return [line for line in text.splitlines() if f" {marker} " in line]

    def look(self, tool: str, marker: str) -> evsrc.Verdict[str]:
        """A complete look."""
        if not self.found(marker):
            return evsrc.Absent(complete=True)
        return evsrc.Happened(f"{tool}-{len(self.found(marker))}")

    def model(self) -> dict[str, str]:
        """A model that words its reason differently each time; being asked leaves a line."""
        _append(self.asked, "asked")
        number = len(self.asked.read_text().splitlines())
        return {"host": "srv-7", "reason": f"wording {number}"}

    @evsrc.tool(effect=evsrc.Effect.MARKED, lag_s=0, late_s=0, history=True)
    async def create(self, call: evsrc.Call, external_reference: str) -> str:
        """A ticket with an external reference."""
        if self.setup.fault == "refused" and call.attempt == 1:
            raise evsrc_not_sent()("connection refused")
        return self.commit("create", call.marker, external_reference)

    @create.probe
    async def _(self, call: evsrc.Call, external_reference: str) -> evsrc.Verdict[str]:
        return self.look("create", call.marker)

    @evsrc.tool(
        effect=evsrc.Effect.STATE, target=lambda host: host, lag_s=0, late_s=0, history=True
    )
    async def isolate(self, call: evsrc.Call, host: str, reason: str) -> str:
        """Isolate a host."""
        return self.commit("isolate", call.marker, f"{host}: {reason}")

    @isolate.probe
    async def _(self, call: evsrc.Call, host: str, reason: str) -> evsrc.Verdict[str]:
        return self.look("isolate", call.marker)

    @evsrc.tool()
    async def tell(self, call: evsrc.Call, text: str) -> str:
        """A message that nobody can look for."""
        return self.commit("tell", call.marker, text)

    @evsrc.tool(effect=evsrc.Effect.MARKED, lag_s=0, late_s=0, history=True)
    async def post(self, call: evsrc.Call, text: str, token: evsrc.SecretRef) -> str:
        """An effect with a token, which its errors echo."""
        value = call.secret(token)
        if call.attempt == 1:
            raise evsrc_not_sent()(f"Authorization: Bearer {value}: no route")
        return self.commit("post", call.marker, text)

    @post.probe
    async def _(self, call: evsrc.Call, text: str, token: evsrc.SecretRef) -> evsrc.Verdict[str]:
        return self.look("post", call.marker)

    @evsrc.tool(effect=evsrc.Effect.READ)
    async def read(self, call: evsrc.Call, token: evsrc.SecretRef) -> str:
        """A read that fails and echoes its token."""
        raise PermissionError(f"Authorization: Bearer {call.secret(token)}: denied")

    @property
    def all_tools(self) -> list[Any]:
        """Every tool."""
        return [self.create, self.isolate, self.tell, self.post, self.read]


def evsrc_not_sent() -> type[Exception]:
    """The error of a request of which no byte left."""
    from evsrc.errors import NotSent

    return NotSent


def flow_of(desk: FileDesk) -> Any:
    """The workflow of the case."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, alert: str) -> str:
        match desk.setup.case:
            case "ticket":
                return await run.call(desk.create, alert)
            case "agent":

                async def decide() -> dict[str, str]:
                    return desk.model()

                decision = await run.step(decide)
                return await run.call(desk.isolate, decision["host"], reason=decision["reason"])
            case "blind":
                return await run.call(desk.tell, alert)
            case _:
                token = evsrc.SecretRef("TOKEN")
                try:
                    await run.call(desk.read, token)
                except StepFailed as error:
                    return f"{error.type_name}, {await run.call(desk.post, alert, token)}"
                return "no error"

    return flow


def main(config: Any, observer: Any, fs_factory: Callable[[], Any]) -> Any:
    """Entry of the crash harness."""
    setup = msgspec.convert(config, Setup)
    if setup.case == "secret":
        logging.basicConfig(level=logging.DEBUG, filename=f"{setup.folder}/debug.log")
    return anyio.run(_run, setup, observer, fs_factory, backend=setup.backend)


async def _run(setup: Setup, observer: Any, fs_factory: Callable[[], Any]) -> list[str]:
    desk = FileDesk(setup, observer)
    async with evsrc.open_runtime(
        f"{setup.folder}/log",
        tools=desk.all_tools,
        observers=[observer],
        fs=fs_factory(),
        secrets=lambda name: f"MARKED-{name}-MARKED",
    ) as runtime:
        outcome = await runtime.run(flow_of(desk), "alert 7", run_id="r")
        value = outcome.value if isinstance(outcome, evsrc.Completed) else ""
        return [outcome.describe(), str(value), repr(outcome), repr(runtime.questions())]


def _append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)
