"""The server of the simulated world: five SOC tools that do not notice being asked twice.

Rule: **no unique index and no check of any key**: every POST inserts a row, whatever came before.
Loopback only. What is committed is in the SQLite file before anything is answered.
Does not know: evsrc. A tool that wants to be idempotent has to manage with search and state.
Must change together: the table below and `World` in world.py.

    POST /<kind>     ticket, block, disable, page:
                     {"target", "finding", "tool", "marker", "payload"}; answers 201 and the row.
                     A payload.state of "off" undoes a block or a disable.
    GET  /state/<kind>?target=   block, disable: {"target", "state": "on" | "off", "row": the last}
    GET  /search/<kind>?marker=  rows with that marker, once they are older than the kind's lag
    GET  /enrich?subject=        what is known about a subject; the same answer every time
    GET  /rows       everything
    POST /hold       {"kind": kind | "*", "nth": n, "finding": uid | ""}: the nth such POST from now
                     on commits, and is not answered before /release; its connection stays open
    GET  /held?timeout_s=&finding=   the next row that was committed and held, each once; null if none
    POST /release    {"answer": bool}: answers what is held, or drops the connections
"""

import contextlib
import socket
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, urlsplit

import msgspec

KINDS = ("ticket", "block", "disable", "page")
"""What can be created."""

STATE_KINDS = ("block", "disable")
"""Kinds that set a state of their target: it can be read, and every setting is still a row."""

BODY_BYTES_MAX = 1024 * 1024
"""Largest request: nothing in the demo comes near."""

DROP_CHECK_S = 0.05
"""How often a held request looks whether its client is gone."""

HELD_TIMEOUT_S_MAX = 60.0
"""Longest wait of /held: a forgotten caller must not keep a thread for ever."""

Json = dict[str, object]

_COLUMNS = "id, kind, target, finding, tool, marker, payload, monotonic_ns, time_ns"
_TABLE = """
CREATE TABLE IF NOT EXISTS effect (
  id INTEGER PRIMARY KEY, kind TEXT, target TEXT, finding TEXT, tool TEXT, marker TEXT,
  payload TEXT, monotonic_ns INTEGER, time_ns INTEGER)
"""


class Refused(Exception):
    """Raised for a request that the world does not understand: answered with its status."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


class Effect(msgspec.Struct, frozen=True):
    """Body of a POST that acts. Nothing of it is checked against what came before."""

    target: str
    finding: str = ""
    tool: str = ""
    marker: str = ""
    payload: Json = {}


class Store:
    """The rows, in one SQLite file. One connection under one lock: order is the order of ids."""

    def __init__(self, path: str, lag_s: Mapping[str, float]) -> None:
        self._lag_s = dict(lag_s)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        # Survives a killed process, not a power cut: nobody pulls the plug on the simulated world.
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(_TABLE)

    def insert(self, kind: str, body: Json) -> Json:
        try:
            effect = msgspec.convert(body, Effect)
        except msgspec.ValidationError as error:
            raise Refused(400, str(error)) from None
        texts = (effect.target, effect.finding, effect.tool, effect.marker)
        payload = msgspec.json.encode(effect.payload).decode()
        with self._lock:
            times = (time.monotonic_ns(), time.time_ns())
            cursor = self._db.execute(
                f"INSERT INTO effect ({_COLUMNS}) VALUES (NULL,?,?,?,?,?,?,?,?)",
                (kind, *texts, payload, *times),
            )
            return self._select("WHERE id = ?", cursor.lastrowid)[0]

    def rows(self) -> list[Json]:
        with self._lock:
            return self._select("")

    def search(self, kind: str, marker: str) -> list[Json]:
        """Rows that the search already shows: an index that follows behind, as real ones do."""
        shown_ns = time.monotonic_ns() - int(self._lag_s.get(kind, 0.0) * 1e9)
        with self._lock:
            return self._select(
                "WHERE kind = ? AND marker = ? AND monotonic_ns <= ?", kind, marker, shown_ns
            )

    def state(self, kind: str, target: str) -> Json:
        with self._lock:
            rows = self._select("WHERE kind = ? AND target = ?", kind, target)
        last = rows[-1] if rows else None
        said = cast(Json, last["payload"]).get("state", "on") if last else "off"
        return {"target": target, "state": "off" if said == "off" else "on", "row": last}

    def _select(self, where: str, *values: object) -> list[Json]:
        found = self._db.execute(f"SELECT {_COLUMNS} FROM effect {where} ORDER BY id", values)
        names = _COLUMNS.split(", ")
        rows: list[Json] = [dict(zip(names, row, strict=True)) for row in found]
        for row in rows:
            row["payload"] = msgspec.json.decode(str(row["payload"]))
        return rows


class Holds:
    """Which POSTs are to be held, which are, and whom to tell. All under one condition."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._armed: list[tuple[str, str, int]] = []
        """(kind, finding, how many more); an empty finding is any."""
        self._unreported: deque[Json] = deque()
        self._release: tuple[int, bool] = (0, True)
        """How many releases there were, and whether the last one answers."""

    def arm(self, kind: str, finding: str, nth: int) -> None:
        with self._changed:
            self._armed.append((kind, finding, nth))

    def matches(self, kind: str, finding: str) -> bool:
        """Count one committed POST against every armed hold; True if one of them is due."""
        with self._changed:
            left = [
                (k, f, n - 1 if k in (kind, "*") and f in (finding, "") else n)
                for k, f, n in self._armed
            ]
            self._armed = [(k, f, n) for k, f, n in left if n > 0]
            return len(self._armed) < len(left)

    def wait(self, row: Json, client: socket.socket) -> bool:
        """Hold one request; False if it is dropped, or its client is gone: do not answer."""
        with self._changed:
            before = self._release[0]
            self._unreported.append(row)
            self._changed.notify_all()
            while self._release[0] == before:
                if _gone(client):
                    return False
                self._changed.wait(DROP_CHECK_S)
            return self._release[1]

    def next_held(self, timeout_s: float, finding: str) -> Json | None:
        def first() -> Json | None:
            fits = (row for row in self._unreported if finding in ("", row["finding"]))
            return next(fits, None)

        with self._changed:
            self._changed.wait_for(first, timeout_s)
            row = first()
            if row is not None:
                self._unreported.remove(row)
            return row

    def release(self, answer: bool) -> None:
        """Let go of all that is held, and disarm the rest."""
        with self._changed:
            self._armed.clear()
            self._unreported.clear()
            self._release = (self._release[0] + 1, answer)
            self._changed.notify_all()


def _gone(client: socket.socket) -> bool:
    """Has the client closed its end? A killed process looks the same."""
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class WorldServer(ThreadingHTTPServer):
    """Serves one store on 127.0.0.1. Its threads are daemons: they never keep the process alive."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, db: str, port: int, lag_s: Mapping[str, float]) -> None:
        self.store = Store(db, lag_s)
        self.holds = Holds()
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients that are killed in mid-request are what this world is for."""


class Handler(BaseHTTPRequestHandler):
    """One connection. Routes are methods named after the verb and the first part of the path."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one write, or Nagle's algorithm delays every answer
    disable_nagle_algorithm = True

    @property
    def world(self) -> WorldServer:
        """The server, by its own type."""
        return cast(WorldServer, self.server)

    def log_message(self, format: str, *args: object) -> None:
        """No access log."""

    def do_GET(self) -> None:
        self._serve("get")

    def do_POST(self) -> None:
        self._serve("post")

    def _serve(self, verb: str) -> None:
        try:
            body = self._body()
            url = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            parts = [*url.path.strip("/").split("/"), ""]
            if verb == "post" and parts[0] in KINDS:
                return self._create(parts[0], body)
            route = getattr(self, f"_{verb}_{parts[0]}", None)
            if route is None:
                raise Refused(404, "no such path")
            self._answer(200, route(parts[1], query if verb == "get" else body))
        except Refused as error:
            self._answer(error.status, {"error": str(error)})

    def _body(self) -> Json:
        given = self.headers.get("Content-Length") or "0"
        length = int(given) if given.isdecimal() else BODY_BYTES_MAX + 1
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            raise Refused(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
        raw = self.rfile.read(length)
        try:
            return msgspec.json.decode(raw or b"{}", type=Json)
        except msgspec.DecodeError as error:
            raise Refused(400, f"the body is not a JSON object: {error}") from None

    def _create(self, kind: str, body: Json) -> None:
        row = self.world.store.insert(kind, body)
        holds = self.world.holds
        if holds.matches(kind, str(row["finding"])) and not holds.wait(row, self.connection):
            self.close_connection = True
            return
        self._answer(201, row)

    def _answer(self, status: int, value: object) -> None:
        raw = msgspec.json.encode(value)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _get_rows(self, _: str, query: Json) -> object:
        return self.world.store.rows()

    def _get_state(self, kind: str, query: Json) -> object:
        if kind not in STATE_KINDS:
            raise Refused(404, f"state is kept for {' and '.join(STATE_KINDS)}")
        return self.world.store.state(kind, _needed(query, "target"))

    def _get_search(self, kind: str, query: Json) -> object:
        if kind not in KINDS:
            raise Refused(404, f"search knows {', '.join(KINDS)}")
        return self.world.store.search(kind, _needed(query, "marker"))

    def _get_enrich(self, _: str, query: Json) -> object:
        return enrichment(_needed(query, "subject"))

    def _get_held(self, _: str, query: Json) -> object:
        timeout_s = min(_number(query.get("timeout_s", 10)), HELD_TIMEOUT_S_MAX)
        return self.world.holds.next_held(timeout_s, str(query.get("finding", "")))

    def _post_hold(self, _: str, body: Json) -> object:
        kind, nth = body.get("kind"), body.get("nth", 1)
        if kind not in (*KINDS, "*") or not isinstance(nth, int) or nth < 1:
            raise Refused(
                400, f"hold needs a kind of {', '.join(KINDS)} or *, and nth of 1 or more"
            )
        self.world.holds.arm(str(kind), str(body.get("finding", "")), nth)
        return {}

    def _post_release(self, _: str, body: Json) -> object:
        self.world.holds.release(answer=body.get("answer") is not False)
        return {}


def _needed(query: Json, name: str) -> str:
    value = query.get(name)
    if not value:
        raise Refused(400, f"{name} is missing or empty")
    return str(value)


def _number(value: object) -> float:
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        raise Refused(400, "timeout_s is not a number") from None


def enrichment(subject: str) -> Json:
    """What the world knows about a subject, derived from its name alone."""
    import hashlib

    digest = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).digest()
    return {
        "subject": subject,
        "country": ("NL", "BR", "SG", "PL", "ZA", "CA")[digest[0] % 6],
        "network": f"AS{64496 + digest[1] % 16}",
        "prior_findings": digest[2] % 4,
    }


def serve(db: str, port: int, lag_s: Mapping[str, float]) -> None:
    """Serve until standard input ends: a dead parent takes its world along."""
    import sys

    server = WorldServer(db, port, lag_s)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f'{{"port": {server.server_address[1]}}}\n')
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.buffer.read()
