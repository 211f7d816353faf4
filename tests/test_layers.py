"""Who may import whom: the table of rooms, kept by reading every import, also inside functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FACE = {"evsrc", "evsrc.errors", "evsrc.events", "evsrc.testing"}
BELOW = ["errors", "core", "log", "tools", "projections", "runtime"]

# Room -> what of evsrc its modules may import, besides themselves.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "core": {"evsrc.errors"},
    "log": {"evsrc.errors"},
    "tools": {"evsrc.errors", "evsrc.core"},
    "projections": {"evsrc.errors", "evsrc.core", "evsrc.log"},
    "runtime": {f"evsrc.{room}" for room in BELOW},
    "testing": {f"evsrc.{room}" for room in BELOW} | {"evsrc"},
    "events": {"evsrc.core"},
    "verify": {"evsrc.errors", "evsrc.log"},
    "demo": FACE,
    "cli": FACE | {f"evsrc.{room}" for room in [*BELOW, "demo", "verify"]},
    "__main__": {"evsrc.cli"},
    "__init__": {f"evsrc.{room}" for room in [*BELOW, "events"]},
    "evsrc_adapters": FACE,
    "examples": FACE | {"evsrc.demo"},
}

# Time, ids and randomness enter the core as data; whatever could fetch them is not there.
CORE_BANS = {
    "anyio", "asyncio", "io", "os", "pathlib", "random", "secrets", "socket", "subprocess", "sys",
    "tempfile", "threading", "time", "trio", "uuid",
}  # fmt: skip
CORE_EXCEPTIONS = {"uuid.UUID": "the canonical form must know the type; the type draws nothing"}

# In the core a module may import what stands on its own line or on an earlier one.
CORE_ORDER = [
    {"events", "verdicts"},
    {"canonical", "codec", "keys", "graph"},
    {"calls"},
    {"state"},
    {"settle", "replay", "nodes", "frontier", "runs", "reports", "people"},
    {"departure"},
    {"decide"},
]


def room_of(path: str) -> str:
    first, *rest = Path(path).with_suffix("").parts
    return first if first == "examples" else rest[0]


def imports(source: str) -> Iterator[str]:
    """Dotted names of everything imported; of `from a import b` it is `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(path: str, source: str) -> list[str]:
    """Imports that the table forbids, for a file at `path` below the root of the repository."""
    room = room_of(path)
    found: list[str] = []
    for name in imports(source):
        top, _, rest = name.partition(".")
        if top == "evsrc" and not _allowed(room, rest.partition(".")[0]):
            found.append(f"{path}: {room} imports {name}")
        elif top == "evsrc_adapters" and room != "evsrc_adapters":
            found.append(f"{path}: evsrc imports {name}")
        elif room == "core":
            found += [f"{path}: core imports {name}"] * _impure(name)
            found += [f"{path}: wrong order: {name}"] * _upwards(Path(path).stem, name)
    return found


def _allowed(room: str, part: str) -> bool:
    if f"evsrc.{part}" in ROOMS[room] or part == room:
        return True
    # `from evsrc import Runtime`: a name of the face, which is not a module.
    return part not in ROOMS and "evsrc" in ROOMS[room]


def _impure(name: str) -> bool:
    return name.partition(".")[0] in CORE_BANS and name not in CORE_EXCEPTIONS


def _upwards(stem: str, name: str) -> bool:
    level = {module: number for number, line in enumerate(CORE_ORDER) for module in line}
    parts = name.split(".")
    if parts[:2] != ["evsrc", "core"]:
        return False
    assert {stem, parts[2]} <= level.keys(), f"{stem} or {parts[2]} has no place in CORE_ORDER"
    return level[parts[2]] > level[stem]


FILES = [
    path
    for folder in ("evsrc", "adapters/evsrc_adapters", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_rooms_import_only_what_the_table_allows() -> None:
    """No file of the packages imports a room that its own room may not know."""
    assert len(FILES) > 10
    found: list[str] = []
    for path in FILES:
        found += violations(path.relative_to(ROOT).as_posix(), path.read_text())
    assert found == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("evsrc/core/decide.py", "import time"),
        ("evsrc/core/decide.py", "def f():\n    from os import path"),
        ("evsrc/core/canonical.py", "from uuid import uuid4"),
        ("evsrc/core/codec.py", "from evsrc.core.state import RunState"),
        ("evsrc/core/events.py", "from evsrc.log.base import Log"),
        ("evsrc/log/base.py", "from evsrc.core import events"),
        ("evsrc/tools/call.py", "import evsrc.runtime.run"),
        ("evsrc/tools/call.py", "from evsrc import runtime"),
        ("evsrc/projections/runs.py", "from evsrc.tools import Tool"),
        ("evsrc/runtime/run.py", "import evsrc"),
        ("evsrc/runtime/run.py", "from evsrc import Effect"),
        ("evsrc/runtime/run.py", "from evsrc.testing import crash"),
        ("evsrc/verify.py", "from evsrc.core.events import Event"),
        ("evsrc/demo/flow.py", "from evsrc.runtime.run import Run"),
        ("evsrc/cli/main.py", "import evsrc_adapters.firewall"),
        ("evsrc/errors.py", "from evsrc.core import keys"),
        ("adapters/evsrc_adapters/jira.py", "from evsrc.tools import tool"),
    ],
)
def test_a_planted_violation_is_caught(path: str, source: str) -> None:
    """Each kind of forbidden import is reported."""
    assert violations(path, source) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("evsrc/core/canonical.py", "from uuid import UUID\nimport hashlib"),
        ("evsrc/core/decide.py", "from evsrc.core import keys\nfrom evsrc.errors import Closed"),
        ("evsrc/demo/flow.py", "import evsrc\nfrom evsrc.errors import Transient"),
        ("evsrc/cli/main.py", "from evsrc.runtime.run import Run\nimport os"),
        ("adapters/evsrc_adapters/jira.py", "from evsrc import Call\nimport evsrc_adapters.base"),
    ],
)
def test_what_the_table_allows_passes(path: str, source: str) -> None:
    """The checker does not forbid more than the table."""
    assert violations(path, source) == []
