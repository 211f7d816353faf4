"""The command line: `evsrc`, or `python -m evsrc.cli`. Needs the extra `cli`.

Rule: nothing that came from a log, a file or an error reaches the terminal unescaped (escape.py).
Does not know: rules about calls, runs or nodes. It reads projections and calls the runtime.

| file | holds |
|---|---|
| app.py | the commands' names, and what happens to errors |
| statuses.py | exit statuses |
| escape.py, render.py, plain.py | what is shown, and how |
| loading.py, logs.py | what is read: the user's code and inputs, and logs |
| the others | one group of commands each |
"""

from importlib.util import find_spec

EXTRA = ("cyclopts", "rich", "httpx")
"""What the extra `cli` installs. httpx is for the demo alone."""

if missing := [name for name in EXTRA if find_spec(name) is None]:
    raise ImportError(
        f"evsrc.cli needs {', '.join(missing)}, which the extra installs: "
        "pip install 'evsrc-engine[cli]'"
    )

from evsrc.cli.app import main  # noqa: E402  after the check: its imports would fail without the advice

__all__ = ("main",)
