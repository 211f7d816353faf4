"""What README and docs show is run: every Python block by itself, every console block line by line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[object]:
    """(page, number, text) of each block of a language."""
    return [
        pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, (found, text) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")))
        if found == language
    ]


def environment() -> dict[str, str]:
    """This interpreter's programs first on the path."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("text", blocks("python"))
def test_python_block(text: str, tmp_path: Path) -> None:
    """A Python block runs by itself, in an empty folder, without a warning."""
    program = tmp_path / "block.py"
    program.write_text(text, encoding="utf-8")

    end = subprocess.run(
        [sys.executable, "-W", "error", str(program)], cwd=tmp_path, capture_output=True, text=True
    )

    assert end.returncode == 0, end.stderr


@pytest.mark.parametrize("text", blocks("console"))
def test_console_block(text: str, tmp_path: Path) -> None:
    """Each `$` line of a console block ends well, or with the status that a comment names."""
    for line in text.splitlines():
        if not line.startswith("$ "):
            continue
        command, _, comment = line[2:].partition("  # exit ")
        end = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert end.returncode == int(comment or 0), (command, end.stdout, end.stderr)


def test_the_tests_run_by_the_readmes_command() -> None:
    """`.ci/test` is the README's test command, word for word."""
    shown = [
        text for found, text in FENCE.findall((ROOT / "README.md").read_text()) if found == "sh"
    ]

    assert len(shown) == 2
    assert shown[1].strip() in (ROOT / ".ci" / "test").read_text()
