"""The three-way demo: one kill schedule, three ways to live with it, counted in the outside world.

Rule: the schedule is a function of the corpus alone, and the same in all three modes; every kill is a
real SIGKILL, and one that did not happen is an error. Effects are counted against a world in which
nothing was killed, by finding, tool and target, never by our own marker.
Does not know: how the numbers are shown.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count as count_up
from tempfile import TemporaryDirectory
from typing import get_args

import msgspec

from evsrc.demo.child import ChildConfig, ChildResult, Mode
from evsrc.demo.corpus import feed_path, findings
from evsrc.demo.counting import Row, count
from evsrc.demo.world import World
from evsrc.testing.crash import CrashServer, KillPoint

WORKERS = 4
"""Findings worked on at once: most of the time is spent waiting for the pager's search to catch up."""

WINDOWS = (
    "before_intent",
    "after_intent",
    "effect_committed",
    "answered",
    "mid_result_write",
    "after_result",
)
"""The six windows of an effect call, in the order of its life."""

EARLY_NODES = ("triage", "reputation", "asset", "context", "verdict")
LATE_NODES = ("page", "report")
KIND_OF = {
    "open_ticket": "ticket",
    "block_ip": "block",
    "disable_account": "disable",
    "page": "page",
    "blind_page": "page",
}
"""Tool -> the kind of row that it makes in the world."""


class Measured(msgspec.Struct, frozen=True):
    """What one mode did to its world."""

    effects: int
    duplicates: int
    lost: int
    open_questions: int
    kills: int
    nodes_run: int
    nodes_reused: int


class ThreeWay(msgspec.Struct, frozen=True):
    """The table. `schedule` is the digest of the kill schedule, `committed_kills` how many of its kills
    fall right after an effect was committed."""

    naive: Measured
    log: Measured
    reconciled: Measured
    schedule: str
    committed_kills: int = 0


class Progress(msgspec.Struct, frozen=True):
    """How far one mode is: findings done, and kills so far."""

    mode: str
    done: int
    total: int
    kills: int


class Planned(msgspec.Struct, frozen=True):
    """The kills of one finding, in the order of the workflow."""

    finding: int
    kills: tuple[KillPoint, ...]


def run_threeway(
    *,
    findings_count: int = 40,
    kills: int = 70,
    blind_page: bool = False,
    backend: str = "asyncio",
    progress: Callable[[Progress], None] = lambda _: None,
) -> ThreeWay:
    """Run the corpus three ways over one kill schedule and count.

    Args:
        findings_count: how many findings of the corpus, 1 to 40.
        kills: how many kills, at most two per finding.
        blind_page: page through the webhook that tells nothing; unknown pages become questions.
        backend: event loop of the children, "asyncio" or "trio".
        progress: called from worker threads, one at a time.

    Raises:
        RuntimeError: a child was not killed at its instant, or did not finish.
    """
    total = min(findings_count, len(findings()))
    with TemporaryDirectory(prefix="evsrc-demo-") as folder:
        stage = _Stage(folder, backend, blind_page, progress)
        reference = stage.reference(total)
        plan = schedule(reference, total, kills)
        modes = {mode: stage.run(mode, plan, reference) for mode in get_args(Mode)}
    digest = hashlib.sha256(msgspec.json.encode(plan)).hexdigest()
    committed = sum(k.name == "effect_committed" for p in plan for k in p.kills)
    return ThreeWay(**modes, schedule=digest, committed_kills=committed)


# ---- the schedule --------------------------------------------------------------------------------


def schedule(reference: Sequence[Row], total: int, kills: int) -> list[Planned]:
    """Which finding is killed where: first somewhere up to the first effects, then in page or report.

    Every window of every tool, and the start and output of nodes, come up in turn.
    """
    uids = [finding.uid for finding in findings()]
    done = {uid: {row.kind for row in reference if row.finding == uid} for uid in uids}
    early, late = count_up(), count_up()
    plan: list[Planned] = []
    for index in range(total):
        wanted = (kills * (index + 1)) // total - (kills * index) // total
        kinds = done[uids[index]]
        points: list[KillPoint] = []
        if wanted >= 2 or (wanted == 1 and index % 2 == 0):
            points.append(_early(next(early), kinds))
        if wanted >= 2 or (wanted == 1 and index % 2 == 1):
            points.append(_late(next(late), kinds))
        plan.append(Planned(index, tuple(points)))
    return plan


def _early(turn: int, kinds: set[str]) -> KillPoint:
    tools = [t for t in ("open_ticket", "block_ip", "disable_account") if KIND_OF[t] in kinds]
    if turn % 7 == 6:
        node = EARLY_NODES[(turn // 7) % len(EARLY_NODES)]
        return KillPoint("node_start" if turn % 2 else "node_output", node=node)
    return KillPoint(WINDOWS[turn % len(WINDOWS)], tool=tools[(turn // len(WINDOWS)) % len(tools)])


def _late(turn: int, kinds: set[str]) -> KillPoint:
    if "page" not in kinds or turn % 7 == 6:
        node = LATE_NODES[turn % len(LATE_NODES)]
        return KillPoint("node_start" if turn % 2 else "node_output", node=node)
    # By node, not by tool: the blind pager is another tool in the same place.
    return KillPoint(WINDOWS[turn % len(WINDOWS)], node="page")


# ---- the stage -----------------------------------------------------------------------------------


class _Stage:
    """Runs one mode after the other, each in a world of its own."""

    def __init__(
        self, folder: str, backend: str, blind: bool, progress: Callable[[Progress], None]
    ) -> None:
        self._folder = folder
        self._backend = backend
        self._blind = blind
        self._progress = progress
        self._lock = threading.Lock()

    def reference(self, total: int) -> list[Row]:
        """The rows of a world in which nothing was killed."""
        with World(os.path.join(self._folder, "reference.db")) as world:
            with CrashServer("evsrc.demo.child:main") as server:
                config = self._config(
                    "naive", world.url, "reference", list(range(total)), "reference"
                )
                end = server.run(msgspec.to_builtins(config))
            if end.status != 0:
                raise RuntimeError(f"the uninterrupted run failed: {end.error}")
            return world.rows()

    def run(self, mode: Mode, plan: list[Planned], reference: Sequence[Row]) -> Measured:
        """Run the plan in one mode and count."""
        world = World(os.path.join(self._folder, f"{mode}.db"))
        killed, questions, done = [0], [0], [0]
        queue = list(reversed(plan))

        def work() -> None:
            with CrashServer("evsrc.demo.child:main") as server:
                while True:
                    with self._lock:
                        if not queue:
                            return
                        planned = queue.pop()
                    asked = self._one(mode, world, server, planned)
                    with self._lock:
                        done[0] += 1
                        killed[0] += len(planned.kills)
                        questions[0] += asked
                        self._progress(Progress(mode, done[0], len(plan), killed[0]))

        with world, ThreadPoolExecutor(WORKERS) as pool:
            for future in [pool.submit(work) for _ in range(WORKERS)]:
                future.result()
            rows = world.rows()
        counted = count(rows, reference)
        ran, reused = self._nodes(mode)
        return Measured(
            effects=counted.effects,
            duplicates=counted.duplicates,
            lost=counted.lost,
            open_questions=questions[0],
            kills=killed[0],
            nodes_run=ran,
            nodes_reused=reused,
        )

    def _one(self, mode: Mode, world: World, server: CrashServer, planned: Planned) -> int:
        """Kill one finding's process at each of its instants, then let it finish."""
        uid = findings()[planned.finding].uid
        name = f"{mode}-{planned.finding}"
        config = msgspec.to_builtins(
            self._config(mode, world.url, name, [planned.finding], f"{mode}.count")
        )
        for point in planned.kills:
            held_url = f"{world.url}/held?timeout_s=0&finding={uid}"
            if point.name == "effect_committed":
                world.hold(KIND_OF.get(point.tool, point.node), finding=uid)
            end = server.run(config, kill_at=point, held_url=held_url, torn_write=mode != "naive")
            if not end.killed:
                raise RuntimeError(
                    f"{mode}, finding {planned.finding}: the child ended with {end.status} before "
                    f"{point}: {end.error or end.result}"
                )
        end = server.run(config)
        if end.status != 0:
            raise RuntimeError(f"{mode}, finding {planned.finding}: {end.error}")
        return msgspec.convert(end.result, ChildResult).questions

    def _config(
        self, mode: Mode, url: str, name: str, chosen: list[int], counter: str
    ) -> ChildConfig:
        return ChildConfig(
            mode,
            url,
            feed_path(1),
            os.path.join(self._folder, name),
            chosen,
            os.path.join(self._folder, counter),
            self._backend,
            self._blind,
        )

    def _nodes(self, mode: Mode) -> tuple[int, int]:
        with open(os.path.join(self._folder, f"{mode}.count"), encoding="ascii") as file:
            lines = file.read().splitlines()
        ran = sum(line.startswith("run ") for line in lines)
        return ran, len(lines) - ran
