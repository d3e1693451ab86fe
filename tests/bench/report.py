"""The one shape in which every benchmark reports: a table to read, and a last line to parse.

A bench collects its figures and goals in a :class:`Report` and returns ``report.finish()``::

    report = Report("dsp")
    report.figure("streams per core", 7900, peers={"soxr HQ": 3200})
    report.goal("streams per core", 7900, ">= 5000")
    return report.finish()

The last line is ``{"bench": NAME, "figures": {...}, "goals": [{"name", "value", "goal", "ok"}]}``, where a
figure is ``{"value": ours, "unit": "ms", "peers": {"soxr HQ": theirs}}``.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}

START_MARK = "<!-- bench -->"
END_MARK = "<!-- /bench -->"


def meets(value: float, goal: str) -> bool:
    """Say whether ``value`` meets a goal such as ``">= 5000"``; NaN meets none.

    Raises:
        ValueError: the goal is not a comparison sign, a space and a number.
    """
    sign, _, number = goal.partition(" ")
    if sign not in _COMPARE:
        raise ValueError(f"not a goal: {goal!r}")
    return _COMPARE[sign](value, float(number))


def number(value: object) -> str:
    """Format a figure for reading: three significant digits, thousands separated, ``-`` for none."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay rows out in columns: the first is flush left, the others flush right."""
    cells = [list(head), *([number(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


class Report:
    """Figures and goals of one run of one bench, with the peers measured in that same run."""

    def __init__(self, bench: str) -> None:
        self.bench = bench
        self.figures: dict[str, dict[str, Any]] = {}
        self.goals: list[dict[str, Any]] = []

    def figure(
        self,
        name: str,
        value: float | str | None,
        unit: str = "",
        *,
        peers: Mapping[str, float | str | None] | None = None,
        headline: bool = False,
    ) -> None:
        """Add a figure of ours, with each peer's for the same thing; a ``headline`` is in the README."""
        self.figures[name] = {"value": value, "unit": unit, "peers": dict(peers or {})}
        if headline:
            self.figures[name]["headline"] = True

    def goal(self, name: str, value: float, goal: str) -> bool:
        """Add a goal such as ``">= 5000"`` and say whether ``value`` meets it."""
        ok = meets(value, goal)
        self.goals.append({"name": name, "value": value, "goal": goal, "ok": ok})
        return ok

    def line(self) -> str:
        """Return the JSON object of the last line."""
        return json.dumps({"bench": self.bench, "figures": self.figures, "goals": self.goals})

    def finish(self) -> int:
        """Print the table, the goals and the JSON line; return 0, or 1 if a goal was missed."""
        peers = list(dict.fromkeys(peer for figure in self.figures.values() for peer in figure["peers"]))
        print(
            table(
                ["figure", "unit", "Voxwire", *peers],
                (
                    [name, figure["unit"], figure["value"], *(figure["peers"].get(peer) for peer in peers)]
                    for name, figure in self.figures.items()
                ),
            )
        )
        for goal in self.goals:
            verdict = "met" if goal["ok"] else "MISSED"
            print(f"goal {goal['name']} {goal['goal']}: {number(goal['value'])} ({verdict})")
        print(self.line(), flush=True)
        return 0 if all(goal["ok"] for goal in self.goals) else 1


def markdown(results: Iterable[Mapping[str, Any]], machine: str) -> str:
    """Return the README's table for the parsed last lines of several benches.

    A figure is in it if it has a goal or is a headline; the commands print the others.
    """
    lines = [
        f"Measured on {machine}, ours and the peers' in the same run; each command prints more.",
        "",
        "| command | figure | Voxwire | goal | peers |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        goals = {goal["name"]: goal for goal in result["goals"]}
        rows = [
            (name, figure["value"], figure["unit"], figure["peers"])
            for name, figure in result["figures"].items()
            if name in goals or figure.get("headline")
        ]
        rows += [
            (name, goal["value"], "", {}) for name, goal in goals.items() if name not in result["figures"]
        ]
        for name, value, unit, peers in rows:
            goal = goals.get(name)
            aim = "" if goal is None else goal["goal"] + ("" if goal["ok"] else " (missed)")
            others = "; ".join(
                f"{peer} {number(theirs)}" for peer, theirs in peers.items() if theirs is not None
            )
            ours = f"{number(value)} {unit}".strip()
            lines.append(
                f"| `python -m tests.bench {result['bench']}` | {name} | {ours} | {aim} | {others} |"
            )
    return "\n".join(lines)


def rewrite(readme: str, block: str) -> str:
    """Return ``readme`` with the text between the bench marks replaced; without marks they are appended."""
    fenced = f"{START_MARK}\n{block}\n{END_MARK}"
    before, start, rest = readme.partition(START_MARK)
    _, end, after = rest.partition(END_MARK)
    if start and end:
        return before + fenced + after
    return f"{readme.rstrip()}\n\n{fenced}\n"
