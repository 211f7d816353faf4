"""The face: what `import evsrc` gives, and what it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import evsrc
import evsrc.errors
import evsrc.events

FACE = Path(evsrc.__file__)

ALLOWED = {"evsrc"}
"""What `import evsrc` may add to a bare interpreter's modules."""

SURFACE = """
Absent Answer Call Cancelled Clock Completed Conflict Each Effect Failed Flow Found Guarantees Handle
Happened InProgress Log LogReader MemoryLog Moment Observer Outcome Planned Record Retry Run RunState
Runtime SecretRef Suspended SweepEnd Tool Undetermined Verdict Workflow evolve fold open_log open_runtime
tool workflow
""".split()
"""The public names: a change of the interface is seen here."""


def imported_for_checkers() -> dict[str, str]:
    """Name -> module of the face's imports under TYPE_CHECKING."""
    (block,) = (n for n in ast.parse(FACE.read_text()).body if isinstance(n, ast.If))
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_surface_is_the_listed_one() -> None:
    """`__all__` is sorted, short, and exactly the checked-in list."""
    assert list(evsrc.__all__) == sorted(evsrc.__all__) == SURFACE
    assert len(evsrc.__all__) < 50


def test_checkers_and_interpreter_see_the_same() -> None:
    """The lazy table and the imports for type checkers name the same things."""
    assert imported_for_checkers() == evsrc._HOMES
    assert set(evsrc._HOMES) == set(evsrc.__all__) == set(dir(evsrc))


def test_every_name_is_there_and_documented() -> None:
    """Each public name can be imported; classes and functions have a docstring."""
    for name in evsrc.__all__:
        value = getattr(evsrc, name)
        if isinstance(value, type) or callable(value):
            assert name == "Verdict" or value.__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo on the face says so."""
    assert not hasattr(evsrc, "open_runtim")


def test_events_and_errors_are_complete() -> None:
    """Every event class of the union is public, and every error is documented."""
    union = {t.__name__ for t in evsrc.events.Event.__args__}
    assert union | {"Event", "ErrorData"} == set(evsrc.events.__all__)
    for value in vars(evsrc.errors).values():
        if isinstance(value, type):
            assert value.__doc__, value


def test_import_stays_light() -> None:
    """`import evsrc` loads nothing outside an allow-list; not asyncio, logging, json or tempfile."""
    code = (
        "import sys; before = set(sys.modules); import evsrc; "
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(out.stdout.split()) <= ALLOWED


def test_the_runtime_keeps_heavy_modules_out() -> None:
    """Also the runtime itself does without asyncio, logging, json, tempfile and inspect until needed."""
    code = (
        "import sys, anyio, msgspec; before = set(sys.modules); import evsrc; evsrc.open_runtime; "
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    heavy = {"asyncio", "trio", "logging", "json", "tempfile", "inspect", "subprocess", "http"}
    assert not heavy & set(out.stdout.split())
