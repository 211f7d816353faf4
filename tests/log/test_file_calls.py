"""File calls live in fs.py and inbox.py, and nowhere else in the log."""

import ast
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "evsrc" / "log"
ALLOWED_FILES = {"file/fs.py", "file/inbox.py"}
HARMLESS = {"PathLike", "fspath", "getpid", "urandom"}
FORBIDDEN_MODULES = {
    "codecs", "fcntl", "fileinput", "glob", "io", "mmap", "pathlib", "shutil", "sqlite3",
    "subprocess", "tempfile",
}  # fmt: skip


def file_calls(source: str) -> list[str]:
    """What in `source` could touch a file."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in HARMLESS:
                found.append(f"os.{name}")
            case ast.Call(func=ast.Name(id="open")):
                found.append("open")
            case ast.Import(names=names):
                found += [n.name for n in names if n.name.partition(".")[0] in FORBIDDEN_MODULES]
                found += [n.name for n in names if n.name == "os" and n.asname]
            case ast.ImportFrom(module=str(module)):
                if module.partition(".")[0] in FORBIDDEN_MODULES | {"os"}:
                    found.append(module)
            case _:
                pass
    return found


def test_only_two_files_of_the_log_touch_files() -> None:
    """No other file of the log opens, reads, writes, syncs, locks, lists or removes anything."""
    files = sorted(LOG.rglob("*.py"))
    assert len(files) > 12
    for path in files:
        name = path.relative_to(LOG).as_posix()
        found = file_calls(path.read_text())
        assert bool(found) == (name in ALLOWED_FILES), (name, found)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.fsync(3)",
        "open('x')",
        "import pathlib",
        "from os import path",
        "import os as o",
        "def f():\n    from tempfile import mkdtemp",
    ],
)
def test_the_test_sees(source: str) -> None:
    """Each way to reach a file is noticed."""
    assert file_calls(source) != []
