"""The user's code and inputs, and what is said of those that cannot be."""

from pathlib import Path

import anyio
import msgspec
import pytest

from evsrc.cli.loading import Loaded, load_inputs, loaded, loaded_tools
from evsrc.cli.statuses import UsageError
from tests.cli import sample
from tests.cli.conftest import FLOW, TOOLS


class Alert(msgspec.Struct, frozen=True):
    id: int


def load(spec: str) -> Loaded:
    async def enter() -> Loaded:
        async with loaded(spec) as found:
            return found

    return anyio.run(enter)


# ---- code ------------------------------------------------------------------------------------------


def test_a_flow_a_workflow_or_what_gives_one() -> None:
    """The attribute may be either, or a function without parameters; `tools` come along."""
    assert load(FLOW).work(FLOW) is load("tests.cli.sample:made").target
    assert load(FLOW).tools == sample.tools
    assert load("tests.cli.sample:agent").work("").name == "agent"


def test_setup_is_entered_around_the_use(folder: Path) -> None:
    """It is open while the code is used, and left afterwards."""

    async def enter() -> str:
        async with loaded(FLOW):
            return (folder / "world.txt").read_text()

    assert anyio.run(enter) == "setup\n"
    assert (folder / "world.txt").read_text() == "setup\nleft\n"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sample", "expected module:attribute"),
        (":flow", "expected module:attribute"),
        ("no_such_module:flow", "no module 'no_such_module'"),
        ("tests.no_such:flow", "no module 'tests.no_such'"),
        ("tests.cli.sample:nothing", "no attribute 'nothing'"),
    ],
)
def test_what_is_not_there_is_a_usage_error(spec: str, words: str) -> None:
    """The message names the spec and what is missing."""
    with pytest.raises(UsageError, match=words):
        load(spec)


def test_a_module_that_its_module_misses_is_its_own_error(folder: Path) -> None:
    """An import that fails inside the user's module keeps its traceback."""
    (folder / "broken_playbook.py").write_text("import no_such_thing")

    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        load("broken_playbook:flow")


def test_the_current_folder_is_on_the_path(folder: Path) -> None:
    """A playbook beside the user is found; what is no flow is refused by type."""
    (folder / "my_playbook.py").write_text("flow = [1]\ntools = 5")
    with pytest.raises(UsageError, match="my_playbook:tools: expected tools, found int"):
        load("my_playbook:flow")
    (folder / "my_other_playbook.py").write_text("flow = [1]")
    with pytest.raises(UsageError, match="expected a Flow or a Workflow, found list"):
        load("my_other_playbook:flow").work("x:flow")


@pytest.mark.parametrize(("spec", "count"), [("", 0), (TOOLS, 2), ("tests.cli.sample:page", 1)])
def test_tools_alone(spec: str, count: int) -> None:
    """A list, one tool, or nothing."""

    async def enter() -> int:
        async with loaded_tools(spec) as tools:
            return len(tools)

    assert anyio.run(enter) == count


def test_what_is_no_tool_is_refused() -> None:
    """A list with something else in it names the type."""
    with pytest.raises(UsageError, match="found a str among them"):

        async def enter() -> None:
            async with loaded_tools("tests.cli.conftest:FLOW"):
                pass

        anyio.run(enter)


# ---- inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("one.json", '\n{"id": 1}\n', [2]),
        ("pretty.json", '{\n  "id": 1\n}\n', [1]),
        ("list.json", '[\n{"id": 1},\n\n  {"id": 2}, {"id": 3}]', [2, 4, 4]),
        ("lines.jsonl", '{"id": 1}\n\n{"id": 2}\n', [1, 3]),
        ("lines.json", '{"id": 1}\n{"id": 2}', [1, 2]),
        ("lines.ndjson", '{"id": 1}', [1]),
    ],
)
def test_a_file_holds_one_a_list_or_lines(
    folder: Path, name: str, text: str, lines: list[int]
) -> None:
    """Every form gives typed inputs in order, each with its file and line."""
    (folder / name).write_text(text)
    found = load_inputs(name, Alert)

    assert [one.value for one in found] == [Alert(n + 1) for n in range(len(lines))]
    assert [one.where for one in found] == [f"{name}, line {line}" for line in lines]


def test_a_folder_holds_files_by_name(folder: Path) -> None:
    """Files with other endings are passed over."""
    (folder / "in").mkdir()
    for name, text in [("b.json", '{"id": 2}'), ("a.jsonl", '{"id": 1}'), ("c.txt", "no")]:
        (folder / "in" / name).write_text(text)

    assert [one.value.id for one in load_inputs("in", Alert)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bad.json", '{\n"id": 1,\n\n}', "bad.json, line 4: no JSON"),
        ("cut.json", '{\n"id": 1', "cut.json, line 2: no JSON"),
        ("bad.jsonl", '{"id": 1}\n{"id"}\n', "bad.jsonl, line 2: no JSON"),
        ("type.jsonl", '{"id": 1}\n{"id": "x"}', r"type.jsonl, line 2: no Alert: .*\$.id"),
        ("type.json", '[{"id": 1},\n{}]', "type.json, line 2: no Alert: .*`id`"),
        ("latin.json", b'{"id": "\xff"}', "latin.json, line 1: no"),
        ("empty.json", "", "empty.json, line 1: no JSON"),
        ("empty.jsonl", "", "expected at least one input"),
        ("empty.json", "[]", "expected at least one input"),
    ],
)
def test_a_bad_file_names_file_and_line(
    folder: Path, name: str, text: str | bytes, words: str
) -> None:
    """Whatever is wrong, somebody can find the place."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(UsageError, match=words):
        load_inputs(name, Alert)


def test_no_file_and_no_files_are_told_apart(folder: Path) -> None:
    """A path that is not there, and a folder without inputs."""
    with pytest.raises(UsageError, match=r"nowhere.json: cannot be read: No such file"):
        load_inputs("nowhere.json", Alert)
    with pytest.raises(UsageError, match=r"expected files \*.json"):
        load_inputs(str(folder), Alert)
