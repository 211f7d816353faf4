"""The dangerous checkpoint: an agent acted, died, and the intel feed that it acted on is no longer the same.

Run it: ``python examples/stale_feed.py``. It kills a child right after it blocked an address, replaces the
feed by a version that no longer calls this address bad, shows the plan, and resumes. What nobody acted on is
computed again; the act is pinned, and a human is asked before anything rests on it.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec

import evsrc
from evsrc.demo.child import ChildConfig
from evsrc.demo.corpus import feed_path, findings
from evsrc.demo.flow import all_tools, build_flow
from evsrc.demo.tools import WorldTools
from evsrc.demo.world import World
from evsrc.testing.crash import CrashServer, KillPoint


def act_and_die(world: World, folder: Path, feed: Path) -> None:
    """A child works on the first finding and is killed as soon as its address is blocked."""
    config = ChildConfig(
        "reconciled", world.url, str(feed), str(folder / "journal"), [0], str(folder / "ran")
    )
    with CrashServer("evsrc.demo.child:main") as server:
        end = server.run(
            msgspec.to_builtins(config), kill_at=KillPoint("after_result", tool="block_ip")
        )
    print(f"killed after the block: exit status {end.status}")


async def resume(world: World, folder: Path, feed: Path) -> None:
    """Show the plan, resume, answer the question, and show what happened outside."""
    finding = findings()[0]
    async with WorldTools(world.url) as tools:
        flow = build_flow(tools, str(feed))
        for line in flow.plan(folder / "journal", finding):
            name = f"{line.node}[{line.item}]" if line.item else line.node
            print(f"  {line.status:7} {name:32} {', '.join(line.why)}")
        async with evsrc.open_runtime(
            folder / "journal", workflows=[flow], tools=all_tools(tools)
        ) as runtime:
            outcome = await runtime.run(flow, finding)
            while isinstance(outcome, evsrc.Suspended):
                for question in outcome.questions:
                    print(f"asked: {question.text}")
                    await runtime.answers.answer(
                        finding.uid, question.question, "keep", by="analyst", reason="still bad"
                    )
                outcome = await (await runtime.start(flow, finding)).wait()
            print(outcome)
    for row in world.rows():
        print(f"  {row.kind:8} {row.target}")


def main() -> None:
    """Everything in a temporary folder, gone at the end."""
    with TemporaryDirectory() as name, World(Path(name) / "world.db") as world:
        folder = Path(name)
        feed = folder / "feed.json"
        shutil.copy(feed_path(1), feed)
        act_and_die(world, folder, feed)
        shutil.copy(feed_path(2), feed)
        print("the feed changed; the plan:")
        anyio.run(resume, world, folder, feed)


if __name__ == "__main__":
    main()
