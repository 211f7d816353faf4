"""The crash windows: a real child, killed by its parent at each of them, for every effect and node.

After one resume the outside world holds exactly one effect per logical call, compared with a world in
which nothing was killed, by finding, tool and target; or, for a tool that tells nothing, an open question.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from evsrc.demo.child import ChildConfig, ChildResult
from evsrc.demo.corpus import feed_path, findings
from evsrc.demo.counting import Row, count
from evsrc.demo.nodes import NODES
from evsrc.demo.threeway import KIND_OF, WINDOWS
from evsrc.demo.world import World
from evsrc.testing.crash import CrashServer, KillPoint

FINDING = 1
"""A finding whose assessment asks for all four effects."""

BACKENDS = ("asyncio", "trio")
TOOLS = ("open_ticket", "block_ip", "disable_account", "page")
ONE_RUN = Counter({**dict.fromkeys(NODES, 1), "reputation": 6})


class Theatre:
    """One case: a fresh world, a fresh log, and the children that act in them."""

    def __init__(self, server: CrashServer, world: World, folder: Path, backend: str) -> None:
        self.server = server
        self.world = world
        self.folder = folder
        self.config = ChildConfig(
            "reconciled",
            world.url,
            feed_path(1),
            str(folder / "journal"),
            [FINDING],
            str(folder / "ran"),
            backend,
        )

    def run(self, kill_at: KillPoint | None = None, *, blind: bool = False) -> ChildResult | None:
        """Run one child; None if it was killed at the instant, its result if it ended by itself."""
        if kill_at is not None and kill_at.name == "effect_committed":
            self.world.hold(KIND_OF[kill_at.tool])
        config = msgspec.structs.replace(self.config, blind=blind)
        end = self.server.run(
            msgspec.to_builtins(config),
            kill_at=kill_at,
            held_url=f"{self.world.url}/held?timeout_s=0",
        )
        if kill_at is not None:
            assert end.status == -9, (kill_at, end)
            return None
        assert end.status == 0, end
        return msgspec.convert(end.result, ChildResult)

    def node_runs(self) -> Counter[str]:
        """How often each node's body ran, by the file that the bodies append to."""
        lines = (self.folder / "ran").read_text().splitlines()
        return Counter(line.removeprefix("run ") for line in lines if line.startswith("run "))


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    """One fork server for all cases of a worker."""
    with CrashServer("evsrc.demo.child:main") as running:
        yield running


@pytest.fixture(scope="module")
def reference(server: CrashServer, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The rows of a world in which nothing was killed."""
    folder = tmp_path_factory.mktemp("reference")
    with World(folder / "world.db") as world:
        result = Theatre(server, world, folder, "asyncio").run()
        assert result is not None
        assert result.outcomes == {findings()[FINDING].uid: "completed"}
        rows = world.rows()
    assert sorted(row.kind for row in rows) == ["block", "disable", "page", "ticket"]
    return rows


@pytest.fixture
def theatre(
    server: CrashServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Theatre]:
    """A fresh world and log per case, on the event loop that the case names."""
    with World(tmp_path / "world.db") as world:
        yield Theatre(server, world, tmp_path, request.getfixturevalue("backend"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("window", WINDOWS)
def test_one_effect_per_call(
    theatre: Theatre, reference: list[Row], backend: str, tool: str, window: str
) -> None:
    """Killed in any window of any effect, the resumed run leaves one effect per call."""
    theatre.run(KillPoint(window, tool=tool))

    result = theatre.run()

    assert result is not None
    assert result.questions == 0
    assert set(result.outcomes.values()) == {"completed"}
    counted = count(theatre.world.rows(), reference)
    assert (counted.duplicates, counted.lost, counted.unexpected) == (0, 0, 0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_blind_effect_is_one_or_a_question(
    theatre: Theatre, reference: list[Row], backend: str, window: str
) -> None:
    """Where the tool tells nothing, an interrupted call is one effect or an open question, never two."""
    theatre.run(KillPoint(window, tool="blind_page"), blind=True)

    result = theatre.run(blind=True)

    assert result is not None
    counted = count(theatre.world.rows(), reference)
    assert counted.duplicates == 0
    unknowable = window in ("after_intent", "effect_committed", "answered", "mid_result_write")
    assert result.questions == int(unknowable)
    assert counted.lost == int(window == "after_intent")
    expected = "suspended: 1 open question(s)" if unknowable else "completed"
    assert set(result.outcomes.values()) == {expected}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("moment", ["node_start", "node_output"])
@pytest.mark.parametrize("node", NODES)
def test_no_finished_node_runs_again(
    theatre: Theatre, reference: list[Row], backend: str, node: str, moment: str
) -> None:
    """Killed at any node's start or output, the resumed run computes nothing again that was recorded."""
    theatre.run(KillPoint(moment, node=node))

    result = theatre.run()

    assert result is not None
    assert set(result.outcomes.values()) == {"completed"}
    counted = count(theatre.world.rows(), reference)
    assert (counted.duplicates, counted.lost, counted.unexpected) == (0, 0, 0)
    runs = theatre.node_runs()
    waves = ({"triage", "indicators"}, {"asset", "context", "reputation"}, {"verdict"})
    waves += ({"ticket", "block", "disable"}, {"page"}, {"report"})
    siblings = next(wave for wave in waves if node in wave)
    for name, once in ONE_RUN.items():
        if name not in siblings or (name == node and node != "reputation"):
            assert runs[name] == once, (name, runs)
        else:  # its body may have been in flight at the kill
            assert once <= runs[name] <= 2 * once, (name, runs)
