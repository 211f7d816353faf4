"""The program: its commands, and what becomes of errors.

Rule: an error of evsrc is one line on standard error and an exit status, never a traceback. An error of
the user's own code keeps its traceback.
Does not know: what a command does.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from cyclopts import App, CycloptsError

from evsrc.cli import render, statuses
from evsrc.errors import EvsrcError

COMMANDS = {
    "demo": "demo",
    "run": "run",
    "runs": "runs",
    "show": "runs",
    "unknown": "unknown",
    "resolve": "resolve",
    "explain": "unknown",
    "plan": "plan",
    "verify": "integrity",
    "export": "integrity",
    "sweep": "sweep",
}
"""Name of the command and of its function -> module. Only what is asked for is imported: `verify` should
not wait for the runtime, nor anything for the demo."""


def build(tokens: Sequence[str]) -> App:
    """The program, with the command that `tokens` begin with, or with all of them (for the overview)."""
    app = App(
        name="evsrc",
        help="Idempotent tool calls and resumable workflows on one event log.",
        help_format="plaintext",
        version_flags=[],
        suppress_keyboard_interrupt=False,
    )
    for name in tokens[:1] if tokens and tokens[0] in COMMANDS else COMMANDS:
        module = import_module(f"evsrc.cli.{COMMANDS[name]}")
        app.command(getattr(module, name), name=name)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. `arguments`: those of the process if left out."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape, instead of our traceback.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = build(tokens)(
            tokens, exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.stdout.flush()
    except CycloptsError as error:
        render.error_line(error)
        render.note("try: evsrc --help, or evsrc COMMAND --help")
        return statuses.USAGE
    except BrokenPipeError:
        # Whoever read us has had enough. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return statuses.FAILED
    except (EvsrcError, OSError, KeyboardInterrupt, BaseExceptionGroup) as error:
        if not _ours(error):
            raise
        render.error_line(error)
        return statuses.status_of(error)
    return status if isinstance(status, int) else statuses.OK


def _ours(error: BaseException) -> bool:
    """Is this, with everything in it, an error that one line explains?"""
    kinds = EvsrcError | OSError | KeyboardInterrupt
    return all(isinstance(leaf, kinds) for leaf in statuses.leaves(error))
