"""The report of ``rlm reward probe`` as text: tables, then findings in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_audit.references import unpaid
from rlm_plugins.report.text_layout import columns, short, titled

_HEAD = ("", "mean", "low", "high", "None", "ms/row")
_UNSTABLE = {
    "same_twice": "a second call gives other scores",
    "same_in_another_order": "the scores depend on the order of the batch",
    "same_alone": "the scores depend on the rest of the batch (as intended if it compares completions of a group)",
}
"""Key of ``behavior`` → the finding if it is false."""


def render(report: Mapping[str, Any]) -> str:
    """Return the report as text."""
    answer = f"correct answers from the column '{report['answer']}'" if report["answer"] else "no correct answers"
    source = f"{report['full_name']}, {short(report['file'])}"
    text = f"reward {report['reward']} ({source}): {report['rows']} examples, {answer}"
    if report["gold"]:
        lines = [(*_HEAD, ""), *(_line(name, summary) for name, summary in report["gold"].items())]
        text += titled("must score, in at least one form", columns(lines))
    lines = [(*_HEAD, "as good as gold"), *(_line(name, summary) for name, summary in report["traps"].items())]
    text += titled("must not score", columns(lines))
    text += titled("behavior", columns(_behavior(report["behavior"])))
    text += titled("agreement on the same completions", columns(map(_agreement, report["agreement"])))
    return text + titled("findings", "\n".join(f"  - {line}" for line in findings(report)))


def _line(name: str, summary: Mapping[str, Any]) -> tuple[str, ...]:
    milliseconds = f"{summary['milliseconds']:.2f}"
    if "error" in summary:
        return (name, "failed", "", "", "", milliseconds, summary["error"])
    numbers = [_number(summary[key]) for key in ("mean", "low", "high")]
    as_good = summary.get("as_good_as_gold")
    return (name, *numbers, str(summary["unscored"]), milliseconds, "" if as_good is None else str(as_good))


def _behavior(behavior: Mapping[str, Any]) -> list[tuple[str, str]]:
    answers = {True: "yes", False: "NO"}
    lines = [
        ("same scores again", answers[behavior["same_twice"]]),
        ("same scores in another order", answers[behavior["same_in_another_order"]]),
        ("same scores one by one", answers[behavior["same_alone"]]),
        ("one example", f"{behavior['milliseconds_alone']:.2f} ms at most"),
    ]
    if "without_answer" in behavior:
        lines.append(("without an answer", behavior["without_answer"]))
    return lines


def _agreement(comparison: Mapping[str, Any]) -> tuple[str, ...]:
    verdicts = "-" if comparison["same_verdict"] is None else f"same verdict on {comparison['same_verdict']:.0%}"
    names = [*comparison["apart_on"][:3], *(["…"] if len(comparison["apart_on"]) > 3 else [])]
    disagreements = f"apart on: {', '.join(names)}" if names else ""
    return (comparison["with"], f"r {_number(comparison['correlation'])}", verdicts, disagreements)


def findings(report: Mapping[str, Any]) -> list[str]:
    """Return the noteworthy results as sentences; none of them need be an error."""
    behavior = report["behavior"]
    lines = [*_gold_findings(report), *_trap_findings(report)]
    lines += [sentence for key, sentence in _UNSTABLE.items() if not behavior[key]]
    if str(behavior.get("without_answer", "")).startswith("scored"):
        lines.append(f"an example without an answer is {behavior['without_answer']}: None would leave it out")
    return lines or ["none"]


def _gold_findings(report: Mapping[str, Any]) -> list[str]:
    means = [summary["mean"] for summary in report["gold"].values() if summary["mean"] is not None]
    empty = report["traps"]["empty"]["mean"]
    lines = []
    if report["gold"] and (not means or max(means) <= (empty if empty is not None else float("-inf"))):
        paid = max(means, default=None)
        words = unpaid(report["reward"], report["given"], [str(report["reference"])], 1, paid, empty)
        lines.append(f"{words} (another form: --form 'So {{answer}}')")
    best = report["gold"].get(report["best_form"], {})
    if best.get("low") != best.get("high"):
        lines.append(f"correct answers score differently: {_number(best['low'])} to {_number(best['high'])}")
    return lines


def _trap_findings(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, summary in report["traps"].items():
        if "error" in summary:
            lines.append(f"'{name}' makes it fail: {summary['error']}")
        elif summary["as_good_as_gold"]:
            share = f"{summary['as_good_as_gold']} of {report['rows']} examples"
            lines.append(f"'{name}' scores as much as the correct answer on {share}")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
