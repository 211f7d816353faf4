"""The simulated world: a child process that outlives every crash of the agent, and its handle.

Rule: standard library only, 127.0.0.1 only. The world ends with its parent: it reads standard input
until that ends. Nothing here makes an effect idempotent, see server.py.
Does not know: evsrc's log, who calls and why.
Must change together: the routes of server.py.

As a program: `python -m evsrc.demo.world --db PATH [--port 0] [--lag page=1.0]` prints one line,
{"port": N}, once it answers.
"""

import os
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import msgspec

from evsrc.demo.counting import Row

PAGE_LAG_S: Final = 1.0
"""A page is found this long after its commit: pagers index late, ticket systems at once."""

START_TIMEOUT_S: Final = 30.0
"""A Python process that has not printed its port by then will not."""

REQUEST_TIMEOUT_S: Final = 10.0
"""Longest wait for an answer of the handle's own requests, beside what `held` waits on purpose."""

STOP_TIMEOUT_S: Final = 5.0
"""After this the child is killed: it has nothing to lose, every row is committed."""


class WorldError(RuntimeError):
    """Raised when the world does not start, refuses a request of its handle, or is not running."""


class State(msgspec.Struct, frozen=True):
    """State of a target: "on" or "off", and the row that set it last."""

    target: str
    state: str
    row: Row | None


class World:
    """A world of its own in a child process. Use as a context manager, from one thread.

    `db`: path of the SQLite file; an existing one goes on. `lag_s`: seconds by kind until a row is
    found by search, on top of `page` after PAGE_LAG_S.
    """

    def __init__(
        self, db: str | os.PathLike[str], *, lag_s: Mapping[str, float] | None = None
    ) -> None:
        self._db = os.fspath(db)
        self._lag_s = {"page": PAGE_LAG_S, **(lag_s or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; 0 before the start."""
        return self._port

    @property
    def url(self) -> str:
        """Root of all paths, without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the child and return once it answers.

        Raises:
            WorldError: it ended, or said nothing for START_TIMEOUT_S.
        """
        import sys

        command = [sys.executable, "-m", "evsrc.demo.world", "--db", self._db, "--port", "0"]
        for kind, seconds in self._lag_s.items():
            command += ["--lag", f"{kind}={seconds}"]
        # Its own process group: Ctrl-C in the terminal is for the agent, the world sees it end.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        line = _first_line(self._process)
        if not line:
            process = self._process
            self.stop()
            raise WorldError(f"the world did not start: exit status {process.returncode}")
        self._port = msgspec.json.decode(line, type=dict[str, int])["port"]

    def stop(self) -> None:
        """End the child and wait for it. Idempotent; the rows stay in the file."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes the pipes, which ends the child, and waits
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def rows(self) -> list[Row]:
        """Every effect, in the order of commits."""
        return msgspec.convert(self.get("/rows"), list[Row])

    def hold(self, kind: str, nth: int = 1, *, finding: str = "") -> None:
        """Arm: the `nth` POST of `kind` ("*" for any) from now on commits and is not answered."""
        self.post("/hold", {"kind": kind, "nth": nth, "finding": finding})

    def held(self, timeout_s: float = 10.0) -> Row | None:
        """Wait until a row is committed and its answer held; each once, None if none comes."""
        path = f"/held?timeout_s={timeout_s}"
        return msgspec.convert(self._request("GET", path, None, timeout_s), Row | None)

    def release(self, *, answer: bool = True) -> None:
        """Answer all that is held, or drop its connections instead; disarm what is armed."""
        self.post("/release", {"answer": answer})

    def state(self, kind: str, target: str) -> State:
        """Whether a block or disable of `target` is in force, by its last row."""
        return msgspec.convert(self.get(f"/state/{kind}", target=target), State)

    def search(self, kind: str, marker: str) -> list[Row]:
        """Rows of `kind` with that marker, as far as the search shows them already."""
        return msgspec.convert(self.get(f"/search/{kind}", marker=marker), list[Row])

    def get(self, path: str, **query: str) -> object:
        """GET any path. Raises WorldError for every answer but 200 and 201."""
        from urllib.parse import urlencode

        return self._request("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, body: Mapping[str, object]) -> object:
        """POST any path; for a kind ("/ticket") this is one more effect. Raises as `get`."""
        return self._request("POST", path, msgspec.json.encode(body))

    def _request(self, verb: str, path: str, body: bytes | None, extra_s: float = 0.0) -> object:
        from http.client import HTTPConnection, HTTPException

        if self._process is None:
            raise WorldError("the world is not running: use it as a context manager or start() it")
        connection = HTTPConnection("127.0.0.1", self._port, timeout=REQUEST_TIMEOUT_S + extra_s)
        try:
            connection.request(verb, path, body)
            with connection.getresponse() as answer:
                status, raw = answer.status, answer.read()
        except (OSError, HTTPException) as error:
            raise WorldError(f"{verb} {path.partition('?')[0]}: {error!r}") from error
        finally:
            connection.close()
        if status not in (200, 201):
            raise WorldError(f"{verb} {path.partition('?')[0]}: status {status}, {raw[:200]!r}")
        return msgspec.json.decode(raw)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()


def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    """The child's first line, b"" if it ended or is too late."""
    import select

    out = process.stdout
    if out is None or not select.select([out], [], [], START_TIMEOUT_S)[0]:
        process.kill()
        return b""
    return out.readline()


def main() -> None:
    """Entry of `python -m evsrc.demo.world`."""
    import argparse

    from evsrc.demo.server import KINDS, serve

    parser = argparse.ArgumentParser(description="The simulated world of the evsrc demo.")
    parser.add_argument("--db", required=True, help="SQLite file; made if missing")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--lag", action="append", default=[], metavar="KIND=SECONDS")
    args = parser.parse_args()
    lag_s: dict[str, float] = {"page": PAGE_LAG_S}
    for given in args.lag:
        kind, _, seconds = str(given).partition("=")
        try:
            lag_s[kind] = float(seconds)
        except ValueError:
            kind = ""
        if kind not in KINDS:
            parser.error(f"--lag needs KIND=SECONDS with a kind of {', '.join(KINDS)}")
    serve(str(args.db), int(args.port), lag_s)


if __name__ == "__main__":
    main()
