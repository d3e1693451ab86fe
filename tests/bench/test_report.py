from __future__ import annotations

import json

import pytest

from tests.bench.report import Report, markdown, meets, rewrite


@pytest.mark.parametrize(
    ("value", "goal", "met"),
    [
        (5000, ">= 5000", True),
        (4999.9, ">= 5000", False),
        (1.5, "<= 1.5", True),
        (2, "< 2", False),
        (3, "> 2", True),
        (0, "== 0", True),
        (float("nan"), ">= 0", False),
        (float("nan"), "<= 0", False),
    ],
)
def test_meets(value: float, goal: str, met: bool) -> None:
    assert meets(value, goal) is met


@pytest.mark.parametrize("goal", ["5000", "=> 5000", ">= many", ""])
def test_a_bad_goal_is_an_error(goal: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        meets(1, goal)


def test_the_last_line_is_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("example")
    report.figure("speed", 12345.6, "frames", peers={"other": 3})
    report.figure("state", "fine")
    report.goal("speed", 12345.6, ">= 5000")
    assert report.finish() == 0
    out = capsys.readouterr().out
    assert "12,346" in out
    assert json.loads(out.splitlines()[-1]) == {
        "bench": "example",
        "figures": {
            "speed": {"value": 12345.6, "unit": "frames", "peers": {"other": 3}},
            "state": {"value": "fine", "unit": "", "peers": {}},
        },
        "goals": [{"name": "speed", "value": 12345.6, "goal": ">= 5000", "ok": True}],
    }
    report.goal("delay", 4.0, "<= 2.3")
    assert report.finish() == 1
    assert "MISSED" in capsys.readouterr().out


def test_the_readme_block_is_replaced_and_nothing_else() -> None:
    report = Report("example")
    report.figure("speed", 2, "m/s", peers={"a": 1, "b": None})
    report.figure("weight", 7, "kg", peers={"a": 9}, headline=True)
    report.figure("colour", "red", peers={"a": "blue"})
    report.goal("speed", 2, ">= 3")
    block = markdown([json.loads(report.line())], "2 cores")
    assert "| `python -m tests.bench example` | speed | 2 m/s | >= 3 (missed) | a 1 |" in block
    assert "| `python -m tests.bench example` | weight | 7 kg |  | a 9 |" in block
    assert "colour" not in block
    readme = "# Top\n\n<!-- bench -->\nold\n<!-- /bench -->\n\nEnd\n"
    once = rewrite(readme, block)
    assert once == f"# Top\n\n<!-- bench -->\n{block}\n<!-- /bench -->\n\nEnd\n"
    assert rewrite(once, block) == once
    added = rewrite("# Top\n", block)
    assert added.startswith("# Top\n\n<!-- bench -->")
    assert rewrite(added, block) == added
