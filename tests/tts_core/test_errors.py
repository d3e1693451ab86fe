from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tts_core import errors
from tts_core.errors import Busy, VoxwireError

ALL: list[type[VoxwireError]] = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, VoxwireError)
]


def drawn() -> dict[str, str]:
    """Child -> parent, from the tree at the top of the module."""
    tree: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([| ]*\+-- )(\w+)", line) or re.fullmatch(r"()(VoxwireError)", line)
        if not found:
            continue
        depth, name = len(found[1]), found[2]
        above = [(d, n) for d, n in above if d < depth]
        if above:
            tree[name] = above[-1][1]
        above.append((depth, name))
    return tree


def test_the_tree_that_is_drawn_is_the_tree() -> None:
    assert drawn() == {c.__name__: c.__bases__[0].__name__ for c in ALL if c is not VoxwireError}


def test_codes_are_stable_names_and_statuses_fit_them() -> None:
    own = [c.__dict__["code"] for c in ALL if "code" in c.__dict__]
    assert len(own) == len(set(own)) == len(ALL)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in own)
    assert all(400 <= c.status < 600 for c in ALL)
    assert {c.code: c.status for c in ALL if c.status in {401, 403, 429, 503}} == {
        "unauthorised": 401,
        "forbidden": 403,
        "limit_exceeded": 429,
        "busy": 429,
        "draining": 503,
        "store_unavailable": 503,
    }


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_words_without_being_given_any(kind: type[VoxwireError]) -> None:
    error = kind()
    assert error.message == str(error) == kind.code.replace("_", " ")
    assert (error.field, error.retry_after) == (None, None)


def test_field_and_hint_are_kept() -> None:
    error = Busy("full", field="context", retry_after=1.5)
    assert (error.message, error.field, error.retry_after) == ("full", "context", 1.5)
    assert isinstance(error, errors.LimitExceeded)


def test_the_module_imports_nothing() -> None:
    tree = ast.parse(Path(errors.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [getattr(node, "module", "") for node in imports] == ["__future__"]
