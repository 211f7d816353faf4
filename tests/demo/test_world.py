"""The world: it doubles everything that is sent twice, and holds a reply after committing."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from evsrc.demo.counting import Counted, Row, count
from evsrc.demo.server import KINDS
from evsrc.demo.world import World, WorldError

EFFECT = {"target": "t-1", "finding": "f-1", "tool": "tool", "marker": "m-1"}

CLIENT = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", "/ticket", b'{"target": "f-9", "finding": "f-9", "tool": "open_ticket"}')
connection.getresponse().read()
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for the tests that do not stop it; each uses its own targets."""
    with World(tmp_path_factory.mktemp("world") / "world.db", lag_s={"page": 0.8}) as world:
        yield world


def rows_of(world: World, target: str) -> list[Row]:
    return [row for row in world.rows() if row.target == target]


@pytest.mark.parametrize("kind", KINDS)
def test_every_effect_sent_twice_is_there_twice(shared: World, kind: str) -> None:
    """Nothing in the world notices that the same was asked before, not even the same marker."""
    body = {**EFFECT, "target": f"twice-{kind}"}
    first, second = shared.post(f"/{kind}", body), shared.post(f"/{kind}", body)
    rows = rows_of(shared, f"twice-{kind}")
    assert [row.kind for row in rows] == [kind, kind]
    assert msgspec.convert([first, second], list[Row]) == rows


def test_a_row_keeps_what_the_client_stored(shared: World) -> None:
    """Marker, tool, finding and payload come back as sent; a marker may be missing."""
    shared.post("/ticket", {"target": "kept", "tool": "x", "payload": {"title": "A\u202e\x1b"}})
    (row,) = rows_of(shared, "kept")
    assert (row.marker, row.tool, row.finding) == ("", "x", "")
    assert row.payload == {"title": "A\u202e\x1b"}


def test_state_follows_the_last_row(shared: World) -> None:
    """A block is on, off after its undo, and every setting stays a row of its own."""
    assert shared.state("block", "ip-1").state == "off"
    assert shared.state("block", "ip-1").row is None
    shared.post("/block", {**EFFECT, "target": "ip-1"})
    assert shared.state("block", "ip-1").state == "on"
    assert shared.state("disable", "ip-1").state == "off"
    shared.post("/block", {**EFFECT, "target": "ip-1", "payload": {"state": "off"}})
    assert shared.state("block", "ip-1").state == "off"
    assert len(rows_of(shared, "ip-1")) == 2


def test_search_shows_a_ticket_at_once_and_a_page_after_its_lag(shared: World) -> None:
    """The search of the pager follows behind, that of the ticket system does not."""
    for kind in ("ticket", "page"):
        shared.post(f"/{kind}", {**EFFECT, "target": "lag", "marker": "lagging"})
    assert len(shared.search("ticket", "lagging")) == 1
    assert shared.search("page", "lagging") == []
    (page,) = [row for row in rows_of(shared, "lag") if row.kind == "page"]
    time.sleep(0.8)
    assert shared.search("page", "lagging") == [page]
    assert shared.search("page", "other") == []


def test_enrichment_is_the_same_every_time(shared: World) -> None:
    """Reading leaves no row, and two reads agree."""
    before = len(shared.rows())
    assert shared.get("/enrich", subject="a.b") == shared.get("/enrich", subject="a.b")
    assert shared.get("/enrich", subject="a.b") != shared.get("/enrich", subject="c.d")
    assert len(shared.rows()) == before


def test_a_client_killed_while_held_leaves_its_row(shared: World) -> None:
    """The window effect_committed: the world says held, the client dies without an answer."""
    shared.hold("ticket")
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(shared.port)])
    held = shared.held(20)
    assert held is not None
    assert client.poll() is None
    client.kill()
    assert client.wait() == -9
    assert rows_of(shared, "f-9") == [held]
    assert shared.held(0.1) is None
    shared.post("/ticket", EFFECT)


def test_a_held_request_ends_with_its_client(shared: World) -> None:
    """A client that hangs up frees its thread in the world, without any release."""
    body = b'{"target": "hung up"}'
    head = b"POST /ticket HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    shared.hold("ticket")
    with socket.create_connection(("127.0.0.1", shared.port), timeout=5) as connection:
        connection.sendall(head + body)
        assert shared.held(10) is not None
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert len(rows_of(shared, "hung up")) == 1


@pytest.mark.parametrize("answer", [True, False])
def test_release_answers_or_drops(shared: World, answer: bool) -> None:
    """A held reply arrives after release, or never, and the row is there in both cases."""
    outcome: list[object] = []

    def send() -> None:
        try:
            outcome.append(shared.post("/page", {**EFFECT, "target": f"held-{answer}"}))
        except WorldError:
            outcome.append(None)

    shared.hold("page")
    thread = threading.Thread(target=send)
    thread.start()
    held = shared.held(10)
    assert held is not None
    assert outcome == []
    shared.release(answer=answer)
    thread.join()
    assert outcome == [msgspec.to_builtins(held) if answer else None]
    assert len(rows_of(shared, f"held-{answer}")) == 1


def test_the_nth_of_a_kind_is_held(shared: World) -> None:
    """Others of the kind, and other kinds, are answered as ever."""
    shared.hold("disable", nth=2)
    shared.post("/disable", {**EFFECT, "target": "n-1"})
    shared.post("/block", {**EFFECT, "target": "n-x"})
    thread = threading.Thread(target=shared.post, args=("/disable", {**EFFECT, "target": "n-2"}))
    thread.start()
    held = shared.held(10)
    shared.release()
    thread.join()
    assert held is not None
    assert held.target == "n-2"


def test_nothing_held_is_none_in_time(shared: World) -> None:
    """Waiting for a hold ends when it was said to end."""
    began = time.monotonic()
    assert shared.held(0.1) is None
    assert time.monotonic() - began < 5


def test_release_disarms(shared: World) -> None:
    """A hold that was never reached does not surprise the next test."""
    shared.hold("*")
    shared.release()
    shared.post("/ticket", EFFECT)


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/nothing", {}, "404"),
        ("/ticket", {}, "target"),
        ("/ticket", {"target": 7}, "target"),
        ("/hold", {"kind": "coffee"}, "kind"),
        ("/hold", {"kind": "page", "nth": 0}, "nth"),
    ],
)
def test_a_bad_post_is_refused(shared: World, path: str, body: dict[str, object], why: str) -> None:
    """A refusal says what is missing and leaves no row."""
    before = len(shared.rows())
    with pytest.raises(WorldError, match=why):
        shared.post(path, body)
    assert len(shared.rows()) == before


@pytest.mark.parametrize("path", ["/search/page", "/search/coffee", "/state/page", "/enrich", "/x"])
def test_a_bad_get_is_refused(shared: World, path: str) -> None:
    """A marker that is empty finds nothing rather than everything without one."""
    with pytest.raises(WorldError, match="status 40"):
        shared.get(path)


@pytest.mark.parametrize(
    "request_text", [b"POST /ticket HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\x00\xff\r\n\r\n"]
)
def test_noise_does_not_stop_the_world(shared: World, request_text: bytes) -> None:
    """Bytes that are no request are answered or dropped, and the next request works."""
    with socket.create_connection(("127.0.0.1", shared.port), timeout=5) as connection:
        connection.sendall(request_text)
        connection.recv(100)
    shared.rows()


def test_many_clients_at_once_lose_nothing(shared: World) -> None:
    """Rows of clients that write at the same time are all there, ids in order."""
    body = {**EFFECT, "target": "crowd"}
    threads = [threading.Thread(target=shared.post, args=("/ticket", body)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [row.id for row in rows_of(shared, "crowd")]
    assert len(ids) == 40
    assert ids == sorted(ids)


def test_rows_outlive_their_world(tmp_path: Path) -> None:
    """Stopped and started again on the same file, the world knows what it knew."""
    world = World(tmp_path / "world.db")
    with world:
        world.post("/ticket", EFFECT)
        before = world.rows()
    world.stop()
    with pytest.raises(WorldError, match="not running"):
        world.rows()
    with world:
        assert world.rows() == before


def test_a_dead_parent_takes_its_world_along(tmp_path: Path) -> None:
    """A parent killed by SIGKILL leaves no server behind."""
    code = (
        "import sys, time; from evsrc.demo.world import World\n"
        f"world = World({str(tmp_path / 'world.db')!r}); world.start()\n"
        "print(world.port, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        parent.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return
        time.sleep(0.05)
    pytest.fail("the world still answers")


def test_a_world_that_cannot_start_says_so(tmp_path: Path) -> None:
    """A database that cannot be opened is an error at once, with the child's exit status."""
    with pytest.raises(WorldError, match="exit status 1"):
        World(tmp_path / "missing" / "world.db").start()


def row(finding: str, target: str, marker: str = "", tool: str = "tool") -> Row:
    return Row(0, "block", target, finding, tool, marker, {}, 0, 0)


def test_counting_ignores_markers() -> None:
    """An effect done twice under two markers is a duplicate all the same."""
    rows = [row("f-1", "a", "m-1"), row("f-1", "a", "m-2")]
    assert count(rows, [row("f-1", "a", "m-3")]) == Counted(2, 1, 0, 0)


def test_counting_tells_duplicate_lost_and_unexpected_apart() -> None:
    """Each row is counted once, against what an uninterrupted run did."""
    reference = [row("f-1", "a"), row("f-1", "b"), row("f-2", "a"), row("f-2", "a")]
    rows = [row("f-1", "a"), row("f-1", "a"), row("f-2", "a"), row("f-3", "a"), row("f-3", "a")]
    counted = count(rows, reference)
    assert counted == Counted(effects=5, duplicates=1, lost=2, unexpected=2)
    assert counted.effects == len(reference) + 1 + 2 - 2
    assert count(reference, reference) == Counted(4, 0, 0, 0)
