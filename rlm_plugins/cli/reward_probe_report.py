"""The report of a probe for people: tables, then what stands out in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.cli.text_layout import columns, short, titled

_HEAD = ("", "mean", "low", "high", "None", "ms/row")


def render(report: Mapping[str, Any]) -> str:
    """The report as text."""
    answer = f"right answers from the column '{report['answer']}'" if report["answer"] else "no right answers to be had"
    text = (
        f"reward {report['reward']} ({report['full_name']}, {short(report['file'])}): {report['rows']} rows, {answer}"
    )
    rows = [(*_HEAD, ""), *(_row(name, x) for name, x in report["gold"].items())]
    text += titled("must score, in one form at least", columns(rows)) if report["gold"] else ""
    rows = [(*_HEAD, "paid as gold"), *(_row(name, x) for name, x in report["traps"].items())]
    text += titled("must not", columns(rows))
    text += titled("behaviour", columns(_behaviour(report["behaviour"])))
    text += titled("agreement, on the same completions", columns(map(_agreement, report["agreement"])))
    return text + titled("what stands out", "\n".join(f"  - {line}" for line in findings(report)))


def _row(name: str, said: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in said:
        return (name, "failed", "", "", "", f"{said['milliseconds']:.2f}", said["error"])
    numbers = [_number(said[key]) for key in ("mean", "low", "high")]
    good = said.get("as_good_as_gold")
    return (name, *numbers, str(said["unscored"]), f"{said['milliseconds']:.2f}", "" if good is None else str(good))


def _behaviour(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    words = {True: "yes", False: "NO"}
    rows = [
        ("the same twice", words[found["same_twice"]]),
        ("the same in another order", words[found["same_in_another_order"]]),
        ("the same alone", words[found["same_alone"]]),
        ("one row alone", f"{found['milliseconds_alone']:.2f} ms at most"),
    ]
    return [*rows, *([("without an answer", found["without_answer"])] if "without_answer" in found else [])]


def _agreement(found: Mapping[str, Any]) -> tuple[str, ...]:
    same = "-" if found["same_verdict"] is None else f"same verdict on {found['same_verdict']:.0%}"
    names = [*found["apart_on"][:3], *(["…"] if len(found["apart_on"]) > 3 else [])]
    apart = f"apart on: {', '.join(names)}" if names else ""
    return (found["with"], f"r {_number(found['correlation'])}", same, apart)


def findings(report: Mapping[str, Any]) -> list[str]:
    """What a person should look at, in sentences; nothing of it is an alarm."""
    found, rows = [], report["rows"]
    scored = [x["mean"] for x in report["gold"].values() if x["mean"] is not None]
    empty = report["traps"]["empty"]["mean"]
    if report["gold"] and (not scored or max(scored) <= (empty if empty is not None else float("-inf"))):
        found.append(
            "no form of the right answer is paid more than nothing at all (another form: --form 'So {answer}')"
        )
    best = report["gold"].get(report["best_form"], {})
    if best.get("low") != best.get("high") and best:
        found.append(f"not every right answer is paid alike: {_number(best['low'])} to {_number(best['high'])}")
    for name, said in report["traps"].items():
        if "error" in said:
            found.append(f"'{name}' makes it fail: {said['error']}")
        elif said["as_good_as_gold"]:
            found.append(f"'{name}' is paid like the right answer on {said['as_good_as_gold']} of {rows} rows")
    behaviour = report["behaviour"]
    for key, words in (
        ("same_twice", "it does not say the same twice"),
        ("same_in_another_order", "the order of the rows matters"),
        ("same_alone", "what else is in the batch matters (meant so where it compares the answers of a group)"),
    ):
        found += [] if behaviour[key] else [words]
    if str(behaviour.get("without_answer", "")).startswith("scored"):
        found.append(f"a row without an answer is {behaviour['without_answer']}: None would leave it out")
    return found or ["nothing"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
