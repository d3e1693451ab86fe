"""What the tree promises: the layout, a test module for each module, short files, nothing left open."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.cover import PACKAGES, has_code, modules, own_tests
from tests.envs import ROOT

TOP_LEVEL = {
    *("pyproject.toml", "gateway", "tts_core", "telephony", "sessions", "tests", "deploy", "README.md"),
    *("Makefile", "LICENSE", "NOTICE", "CHANGELOG.md", ".gitignore", ".ci"),
}
MAX_LINES = 600

LEFT_OPEN = re.compile(r"NotImplemented[E]rror|\bTO[D]O\b|\bFIX[M]E\b|\bX[X]X\b")
SKIPPED = re.compile(r"pytest\.[s]kip|\b[s]kipif|import[o]rskip|mark\.[x]fail")
PATHS = re.compile(r"/w[o]rk/|/r[o]ot/|/tmp/b[a]sh|py[p]i\.|python[h]osted|registry\.np[m]js|deb\.deb[i]an")
UNSAFE_LOADS = re.compile(r"allow_[p]ickle *= *True|yaml\.[l]oad\(|trust_[r]emote_code *= *True")


def tracked(*patterns: str) -> list[Path]:
    """The files of this checkout that git knows or would add, as absolute paths."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def found(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    """``file:line: text`` of every match."""
    hits = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            hits.append(f"{path.relative_to(ROOT)}:{line}: {match[0]}")
    return hits


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_the_top_level_is_as_designed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP_LEVEL


@pytest.mark.parametrize("module", [str(path.relative_to(ROOT)) for path in modules()])
def test_every_module_has_its_own_test_module(module: str) -> None:
    wanted, tests = own_tests(ROOT / module)
    assert tests, f"{module} has code but no {wanted.relative_to(ROOT)}"


def test_code_counts_as_code() -> None:
    """The mirror check must not be escaped by a package that keeps its code in ``__init__``."""
    assert not has_code(ast.parse('"""Doc."""\nfrom a import b\n__all__ = ["b"]\n'))
    assert has_code(ast.parse("def f(): ...\n"))
    assert has_code(ast.parse("class C: ...\n"))
    assert has_code(ast.parse("for x in y: print(x)\n"))


def test_no_file_is_long() -> None:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in tracked("*.py")}
    assert {str(path.relative_to(ROOT)): n for path, n in counts.items() if n > MAX_LINES} == {}


def test_nothing_is_left_open() -> None:
    assert found(LEFT_OPEN, tracked("*.py")) == []


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler hides any exception with ``pass``, or cancellation by not passing it on."""
    kind = ast.unparse(handler.type) if handler.type else "BaseException"
    if "BaseException" in kind:
        passed_on = {"throw", "set_exception"}
        return not any(
            isinstance(node, ast.Raise) or (isinstance(node, ast.Attribute) and node.attr in passed_on)
            for node in ast.walk(handler)
        )
    return kind == "Exception" and all(isinstance(node, ast.Pass) for node in handler.body)


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        ("except Exception:\n    pass", True),
        ("except:\n    log()", True),
        ("except BaseException:\n    log()", True),
        ("except BaseException:\n    close()\n    raise", False),
        ("except BaseException as error:\n    waiter.set_exception(error)", False),
        ("except Exception:\n    log()", False),
        ("except OSError:\n    pass", False),
    ],
)
def test_swallowing_is_seen(code: str, bad: bool) -> None:
    (statement,) = ast.parse(f"try:\n    f()\n{code}").body
    assert isinstance(statement, ast.Try)
    assert swallows(statement.handlers[0]) is bad


def test_no_error_is_swallowed() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and swallows(node)
    ]
    assert hits == []


def naps(tree: ast.AST) -> set[int]:
    """Lines that sleep for a time, outside a loop that polls a real peer."""
    sleeps = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"time.sleep", "asyncio.sleep"}
        and ast.unparse(node.args[0]) != "0"
    }
    polls = {
        inner.lineno
        for loop in ast.walk(tree)
        if isinstance(loop, ast.While)
        for inner in ast.walk(loop)
        if isinstance(inner, ast.Call)
    }
    return sleeps - polls


def test_naps_are_seen() -> None:
    assert naps(ast.parse("import time\ntime.sleep(0.5)\n")) == {2}
    assert naps(ast.parse("async def f():\n    await asyncio.sleep(1)\n")) == {2}
    assert naps(ast.parse("async def f():\n    await asyncio.sleep(0)\n")) == set()
    assert naps(ast.parse("while not ready():\n    time.sleep(0.01)\n")) == set()


def test_no_test_skips_or_sleeps() -> None:
    """A sleep on a virtual loop takes no time and is fine."""
    tests = tracked("tests/*.py")
    assert found(SKIPPED, tests) == []
    texts = {path: path.read_text(encoding="utf-8") for path in tests if path.name.startswith("test_")}
    real = {path: text for path, text in texts.items() if "virtual" not in text}
    assert [f"{path.name}:{line}" for path, text in real.items() for line in naps(ast.parse(text))] == []


def test_no_machine_or_registry_is_named() -> None:
    assert found(PATHS, tracked()) == []


def unpickles(tree: ast.AST) -> set[int]:
    """Lines on which torch loads anything but bare weights."""
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("torch.load")
        and "weights_only=True" not in {ast.unparse(keyword) for keyword in node.keywords}
    }


def test_unpickling_is_seen() -> None:
    assert unpickles(ast.parse("torch.load(path)\n")) == {1}
    assert unpickles(ast.parse("torch.load(path, weights_only=False)\n")) == {1}
    assert unpickles(ast.parse("torch.load(io.BytesIO(b), weights_only=True)\n")) == set()


def test_nothing_loads_what_could_run() -> None:
    assert found(UNSAFE_LOADS, sources()) == []
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources()}
    assert [
        f"{path.relative_to(ROOT)}:{line}" for path, tree in trees.items() for line in unpickles(tree)
    ] == []
