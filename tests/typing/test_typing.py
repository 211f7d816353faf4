"""The public types, as both checkers see them: what is right is clean, what is wrong is not."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHECK_SECONDS_MAX = 100

Flagged = dict[str, set[int]]


def run_mypy(folder: Path) -> Flagged:
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"]
    command += ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    command += ["--cache-dir", str(folder / "cache"), "--hide-error-context"]
    command += [str(HERE / "positive.py"), str(HERE / "negative.py")]
    output = _output(command)
    flagged: Flagged = {}
    for name, line in re.findall(r"^(\S+?):(\d+)(?::\d+)?: error:", output, re.MULTILINE):
        flagged.setdefault(Path(name).name, set()).add(int(line))
    return flagged


def run_pyright(folder: Path) -> Flagged:
    settings = {
        "include": ["."],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    # In a folder of its own: pyright resolves `include` against where its settings lie.
    for name in ("positive.py", "negative.py"):
        (folder / name).write_text((HERE / name).read_text())
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(folder)]
    report = json.loads(_output([*command, "--pythonpath", sys.executable]))
    flagged: Flagged = {}
    for problem in report["generalDiagnostics"]:
        line = problem["range"]["start"]["line"] + 1
        flagged.setdefault(Path(problem["file"]).name, set()).add(line)
    return flagged


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=CHECK_SECONDS_MAX, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


CHECKERS: dict[str, Callable[[Path], Flagged]] = {"mypy": run_mypy, "pyright": run_pyright}


@pytest.mark.parametrize("checker", CHECKERS)
def test_checkers_flag_exactly_the_marked_lines(checker: str, tmp_path: Path) -> None:
    """Correct use is clean, and each line marked `# E`, and no other, is flagged."""
    lines = (HERE / "negative.py").read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# E")}
    assert len(marked) > 20
    flagged = CHECKERS[checker](tmp_path)
    assert flagged.get("positive.py", set()) == set()
    assert flagged.get("negative.py", set()) == marked
