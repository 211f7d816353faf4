"""Code versions: what changes behaviour changes them, what does not, does not; digests of files."""

import hashlib
import linecache
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evsrc.errors import DefinitionError, NoSource, NoStableForm
from evsrc.runtime.fingerprint import DEPTH_MAX, code_version, file_digest

ROOT = Path(__file__).parents[2]

Load = Callable[..., types.ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Makes a module from source text, in a file of its own, as one of several of a package."""
    made: list[str] = []

    def load(source: str, name: str = "soc.nodes") -> types.ModuleType:
        path = tmp_path / f"{len(made)}.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        module = types.ModuleType(name)
        module.__file__ = str(path)
        made.append(name)
        sys.modules[name] = module
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
        return module

    yield load
    for name in made:
        sys.modules.pop(name, None)
    linecache.clearcache()


def versions(load: Load, *sources: str, of: str = "node") -> list[str]:
    return [code_version(getattr(load(source), of)) for source in sources]


NODE = '''
    import functools
    import logging

    LIMIT = 3
    NAMES = ["a", {"b": None}]
    UNUSED = 1
    log = logging.getLogger("soc")

    def helper(x: int) -> int:
        return deeper(x) + LIMIT

    def deeper(x):
        return x * 2

    def node(a: int, b: str = "eu") -> int:
        """Say what it does."""
        log.info("%s", NAMES)
        return helper(a) + len(f"{b:>{LIMIT}}")
'''

LAYOUT = [
    ("a comment", "        log.info", "        # why\n        log.info"),
    ("layout", "return helper(a) + len(", "return helper( a ) + \\\n            len("),
    ("a docstring", "Say what it does.", "Say it otherwise."),
    ("no docstring", '        """Say what it does."""\n', ""),
    ("a helper's docstring", "        return deeper", '        "doc"\n        return deeper'),
    ("an unused constant", "UNUSED = 1", "UNUSED = 2"),
    ("quotes", '"eu"', "'eu'"),
    ("a line above", "    LIMIT = 3", "    OTHER = 0\n\n    LIMIT = 3"),
    ("another logger", '"soc"', '"soc.other"'),
    ("order in a dict", '{"b": None}', '{"b": None,}'),
]

MEANING = [
    ("its body", "helper(a) + len", "helper(a) - len"),
    ("a constant", "LIMIT = 3", "LIMIT = 4"),
    ("the type of a constant", "LIMIT = 3", "LIMIT = 3.0"),
    ("a part of a constant", '{"b": None}', '{"b": False}'),
    ("a default", '"eu"', '"us"'),
    ("an annotation", "a: int,", "a: str,"),
    ("a helper", "deeper(x) + LIMIT", "deeper(x) - LIMIT"),
    ("a helper's helper", "x * 2", "x * 3"),
    ("a text in an f-string", "{b:>{LIMIT}}", "{b:<{LIMIT}}"),
    ("async", "def node(", "async def node("),
]


@pytest.mark.parametrize(("what", "old", "new"), LAYOUT, ids=[row[0] for row in LAYOUT])
def test_what_does_not_change_behaviour_keeps_the_version(
    load: Load, what: str, old: str, new: str
) -> None:
    """Comments, layout, docstrings and what is not named do not count."""
    assert old in NODE
    one, other = versions(load, NODE, NODE.replace(old, new, 1))
    assert one == other


@pytest.mark.parametrize(("what", "old", "new"), MEANING, ids=[row[0] for row in MEANING])
def test_h16_what_changes_behaviour_changes_the_version(
    load: Load, what: str, old: str, new: str
) -> None:
    """H16: a changed line, constant, default or helper, however far down, counts."""
    assert old in NODE
    one, other = versions(load, NODE, NODE.replace(old, new))
    assert one != other


def test_h16_factory_of_two_zones_gives_two_versions(load: Load) -> None:
    """H16: one text with two closures is two functions; the same closure again is the same one."""
    module = load(
        """
        def factory(zone):
            def block(host):
                return zone, host
            return block
        """
    )
    eu, us, again = (module.factory(zone) for zone in ("eu", "us", "eu"))
    assert code_version(eu) != code_version(us)
    assert code_version(eu) == code_version(again)


def test_h16_module_constant_of_one_text(load: Load) -> None:
    """H16: two modules of one text but for a constant never share a version."""
    one, other = versions(
        load, "Z = 'eu'\ndef node(h): return Z, h", "Z = 'us'\ndef node(h): return Z, h"
    )
    assert one != other


def test_h16_lambdas_on_one_line_are_told_apart(load: Load) -> None:
    """H16: several lambdas on one line, also one in another, each have their own version."""
    module = load(
        """
        pair = [lambda x: x + 1, lambda x: x + 2, lambda x: (lambda y: y + x), lambda: (1 if pair else 2)]
        inner = pair[2](1)
        def make(x):
            return lambda y: y + x
        alone = lambda x: x + 2
        split = lambda x: (
            x + 2
        )
        """
    )
    found = [code_version(fn) for fn in [*module.pair, module.inner]]
    assert len(set(found)) == 5
    assert code_version(module.alone) == code_version(module.split) == found[1]
    assert code_version(module.make(1)) == found[4]


def test_h16_partial_counts_its_arguments(load: Load) -> None:
    """H16: a partial is its function and its arguments."""
    module = load("Z = 1\ndef node(zone, host): return Z, zone, host")
    from functools import partial

    made = [partial(module.node, "eu"), partial(module.node, "us"), partial(module.node, zone="eu")]
    assert len({code_version(fn) for fn in [*made, module.node]}) == 4
    before = code_version(made[0])
    module.Z = 2
    assert code_version(made[0]) != before


def test_bound_method_counts_its_object(load: Load) -> None:
    """A method of a dataclass counts the class's code and the object's fields."""
    source = """
        from dataclasses import dataclass

        @dataclass
        class Blocker:
            zone: str

            def node(self, host): return self.name() + host
            def name(self): return self.zone

        eu, us = Blocker("eu"), Blocker("us")
        """
    module = load(source)
    eu = code_version(module.eu.node)
    assert eu != code_version(module.us.node)
    changed = load(source.replace("return self.zone", "return self.zone.lower()"))
    assert eu != code_version(changed.eu.node)


@pytest.mark.parametrize(
    ("definition", "changed"),
    [
        ("class T(msgspec.Struct):\n    n: int = 1", "n: int = 2"),
        ("@dataclasses.dataclass\nclass T:\n    n: int = 1\n    def m(self): return 1", "return 2"),
        ("class B:\n    def m(self): return 1\nclass T(B):\n    pass", "return 2"),
        ("class T:\n    limit = LIMIT", "LIMIT * 2"),
        ("class T(enum.Enum):\n    A = 1", "A = 2"),
        ("T = collections.namedtuple('T', 'a b')", "'a c'"),
        ("T = enum.Enum('T', 'A B')", "'A C'"),
        ("T = [re.compile('a')]", "compile('b')"),
        ("T = list[int]", "list[str]"),
        ("T = pathlib.Path('a')", "Path('b')"),
        ("T = decimal.Decimal('1.0')", "Decimal('1.00')"),
        ("class Base(str): pass\nT = Base('a')", "Base('b')"),
        ("T = types.MappingProxyType({'a': 1})", "{'a': 2}"),
        ("class Outer:\n    class T:\n        n = 1\nT = Outer.T", "n = 2"),
        ("T = functools.partial(int, base=2)", "base=8"),
        ("T = frozenset({'a', 'b'})", "{'a', 'c'}"),
    ],
)
def test_what_a_name_stands_for_counts(load: Load, definition: str, changed: str) -> None:
    """Classes, their bases and methods, and standard values that a node names all count."""
    head = (
        "import collections, dataclasses, decimal, enum, functools, msgspec, pathlib, re, types\n"
    )
    head += "LIMIT = 3\n"
    tail = "\ndef node(x): return T, x\n"
    start = next(
        (i for i in range(len(changed), 0, -1) if changed[:i] in definition), len(changed)
    )  # the longest beginning that both share says where the change goes
    at = definition.rindex(changed[:start])
    other = definition[:at] + changed + definition[at + len(changed) :]
    if changed == "LIMIT * 2":
        other = definition.replace("LIMIT", changed)
    assert other != definition
    one, two = versions(load, head + definition + tail, head + other + tail)
    assert one != two


def test_h16_local_classes_count_what_they_capture(load: Load) -> None:
    """H16: a class made in a factory counts its base and what its methods close over."""
    module = load(
        """
        class One: pass
        class Two: pass

        def factory(base, zone):
            class Blocker(base):
                def name(self): return zone
            def node(): return Blocker
            return node
        """
    )
    made = [
        module.factory(base, zone) for base in (module.One, module.Two) for zone in ("eu", "us")
    ]
    assert len({code_version(fn) for fn in made}) == 4
    assert code_version(made[0]) == code_version(module.factory(module.One, "eu"))


def test_helper_of_another_module_of_the_package_counts(load: Load) -> None:
    """`from soc import tools; tools.helper()` counts the helper; of another package only the name."""
    node = "import sys\ntools = sys.modules['{0}']\ndef node(x): return tools.helper(x)"
    for name, counts in (("soc.tools", True), ("other.tools", False)):
        load("def helper(x): return 1", name)
        before = code_version(load(node.format(name)).node)
        load("def helper(x): return 2", name)
        assert (code_version(load(node.format(name)).node) != before) == counts


def test_decorators_count_by_what_they_made(load: Load) -> None:
    """A wrapper's code, its argument and the function inside it all count; a registering one does not."""
    source = """
        import functools

        def times(n):
            def wrap(fn):
                @functools.wraps(fn)
                def inner(*args): return [fn(*args) for _ in range(n)]
                return inner
            return wrap

        def register(fn): return fn

        @times(2)
        def node(x): return x
        """
    same = source.replace("@times(2)", "@times( 2 )  # twice")
    registered = source.replace("@times(2)", "@register\n        @times(2)")
    others = [
        source.replace("@times(2)", "@times(3)"),
        source.replace("return x\n", "return -x\n"),
        source.replace("[fn(*args) for", "[fn(*args) or 0 for"),
        source.replace("@times(2)", "@register"),
    ]
    one, two, three, *rest = versions(load, source, same, registered, *others)
    assert one == two == three
    assert len({one, *rest}) == 5


def test_object_that_wraps_a_function_is_followed(load: Load) -> None:
    """A cached helper, and a helper in another package's wrapper, count by the function inside."""
    source = """
        import contextlib, functools

        @functools.lru_cache
        def cached(x): return x + 1

        @contextlib.contextmanager
        def opened(x): yield x + 1

        def node(x):
            with opened(x): return cached(x)
        """
    changed = [
        source.replace("return x + 1", "return x + 2"),
        source.replace("yield x + 1", "yield x"),
    ]
    assert len(set(versions(load, source, *changed))) == 3


def test_wrapper_of_another_package_is_followed_by_what_it_wraps(load: Load) -> None:
    """A wrapper that keeps our function out of its closure still names it as `__wrapped__`."""
    load(
        """
        import functools

        def wrap(fn):
            @functools.wraps(fn)
            def inner(*args, _fn=fn): return _fn(*args)
            return inner
        """,
        "other.wrapping",
    )
    source = """
        import sys

        @sys.modules["other.wrapping"].wrap
        def helper(x): return x + 1

        def node(x): return helper(x)
        """
    one, other = versions(load, source, source.replace("x + 1", "x + 2"))
    assert one != other


def test_name_that_is_only_assigned_does_not_count(load: Load) -> None:
    """A class attribute is no use of a global of the same name."""
    source = "limit = 1\nclass T:\n    limit = 5\ndef node(): return T"
    one, other = versions(load, source, source.replace("limit = 1", "limit = 2"))
    assert one == other


def test_recursion_and_long_chains_end(load: Load) -> None:
    """Mutual recursion and a chain of 2,000 helpers need no depth; the last link still counts."""
    chain = "def node(x): return h0(x) if x else node(x - 1)\n" + "\n".join(
        f"def h{i}(x): return h{i + 1}(x)" for i in range(2_000)
    )
    one, other = versions(
        load, chain + "\ndef h2000(x): return node(x)", chain + "\ndef h2000(x): return -node(x)"
    )
    assert one != other


def test_module_name_does_not_count(load: Load) -> None:
    """Run as a script or imported, a flow has the same versions."""
    assert code_version(load(NODE, "__main__soc").node) == code_version(
        load(NODE, "soc.x.nodes").node
    )


def test_tools_count_by_name(load: Load) -> None:
    """Changing what a tool does leaves the node as it is: the tool's calls are on record."""
    source = """
        from evsrc.tools import Call, tool

        @tool()
        async def act(call: Call, host: str) -> int:
            return 1

        async def node(run, x: str) -> int:
            return await run.call(act, x)
        """
    one, same, other = versions(
        load,
        source,
        source.replace("return 1", "return 2"),
        source.replace("@tool()", "@tool(name='b')"),
    )
    assert one == same != other


# ---- refused, or declared -------------------------------------------------------------------------


MAKE = "def make(v):\n    def node(): return v\n    return node\n"


@pytest.mark.parametrize(
    ("source", "path"),
    [
        (MAKE + "node = make(Plain())", "closure v"),
        (MAKE + "node = make([{1: Plain()}])", r"closure v\[0\]\[1\]"),
        (MAKE + "import threading\nnode = make(threading.Lock())", "closure v"),
        ("def node(x=Plain()): pass", "defaults"),
        ("import functools\ndef f(x): pass\nnode = functools.partial(f, Plain())", "partial"),
        ("node = Plain().m", "self"),
        ("thing = Plain()\ndef node(): return thing", "global thing"),
        ("thing = Plain()\ndef h(): return thing\ndef node(): return h()", "global thing"),
        ("loop = []\nloop.append(loop)\ndef node(): return loop", f"deeper than {DEPTH_MAX}"),
    ],
)
def test_h16_what_has_no_stable_form_is_refused(load: Load, source: str, path: str) -> None:
    """H16: a value captured silently is refused by name, with the remedy; a declared version helps."""
    module = load("class Plain:\n    def m(self): pass\n" + source)
    with pytest.raises(NoStableForm, match=f"{path}.*version="):
        code_version(module.node)
    assert code_version(module.node, declared="1")


def test_sentinel_is_stable(load: Load) -> None:
    """A bare object(), the usual mark for "not given", is what it is."""
    source = "MISSING = object()\ndef node(x=MISSING): return x is MISSING"
    one, other = versions(load, source, source)
    assert one == other


def test_no_source_is_refused_unless_declared() -> None:
    """Code from exec or a REPL is refused, naming the function; a declared version replaces it."""
    names: dict[str, Any] = {}
    exec("def node(x): return x", names)
    with pytest.raises(NoSource, match="node.*version="):
        code_version(names["node"])
    assert code_version(names["node"], declared="1") == code_version(len, declared="1")
    assert code_version(names["node"], declared="1") != code_version(len, declared="2")


def test_declared_version_is_no_digest_of_code(load: Load) -> None:
    """A declared version stands for the code whatever it says, and never meets a computed one."""
    one, other = load("def node(x): return 1").node, load("def node(x): return 2").node
    assert code_version(one, declared="v") == code_version(other, declared="v") != code_version(one)


def test_source_with_warnings_is_read(load: Load) -> None:
    """A file that the compiler warns about still has a version, also where warnings are errors."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load('def node(x): return "\\d", x')
    assert code_version(module.node)


CHILD = """
import enum, sys
from evsrc.runtime.fingerprint import code_version

class Zone(enum.Enum):
    EU = 1

def alpha(): return 1
def beta(): return 2

TEXTS = {f"host-{i}" for i in range(40)}
MIXED = frozenset({alpha, beta, Zone, Zone.EU, "a", 1, None})
TABLE = {t: {alpha, beta} for t in TEXTS}

def node(x):
    '''doc'''
    assert x
    return TEXTS, MIXED, TABLE, [(lambda y: y + 1)(x) for _ in range(3)]

sys.stdout.write(code_version(node))
"""


def test_h05_processes_agree(tmp_path: Path) -> None:
    """H05: hash seeds, -O, -OO and no column positions change no version."""
    script = tmp_path / "script.py"
    script.write_text(CHILD)
    children = [
        subprocess.Popen(
            [sys.executable, *flags, str(script)],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, flags in enumerate([[], [], ["-O"], ["-OO"], ["-X", "no_debug_ranges"]], start=1)
    ]
    answers = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0] * 5
    assert len(set(answers)) == 1
    assert len(answers[0]) == 64


def test_version_is_pinned(load: Load) -> None:
    """The form never changes under one format tag, on any supported Python: checkpoints stand."""
    assert code_version(load(NODE).node) == (
        "d08ec82294c76589422624cb4aa125439d13e3862e8f543c845388dff52ea86b"
    )
    assert code_version(load(NODE).node, declared="1") == (
        "f5f6ce370a4df4f4281f3e43d3f3f6335367ab7d88ddc2ecbf31f8bd3358243d"
    )


# ---- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_file_digest_is_that_of_its_bytes(tmp_path: Path, size: int) -> None:
    """A file's digest is SHA-256 of its bytes, whatever its size, by text or path object."""
    path = tmp_path / "feed.json"
    path.write_bytes(b"x" * size)
    assert file_digest(path) == file_digest(str(path)) == hashlib.sha256(b"x" * size).hexdigest()


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is not there, or is a folder, is an error of the declaration that names the path."""
    for path in (tmp_path / "feed.json", tmp_path):
        with pytest.raises(DefinitionError) as caught:
            file_digest(path)
        assert repr(str(path)) in str(caught.value)
