"""`rlm lesson`: a right solution of every exercise is graded right, wrong ones by the law that they violate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlm_lab.lessons import LESSONS, render_grade
from typer.testing import CliRunner

from rlm_plugins.cli import app

RIGHT = {
    1: "return [float((c.strip().splitlines() or [''])[-1].strip() == a) for c, a in zip(completions, answer)]",
    2: """same = group[:, None] == group
    difference = (rewards[:, None] - rewards).where(same, 0.0)
    return difference.sum(1) / (same.sum(1) - 1).clamp(min=1)""",
    3: "return ((logp - old_logp) * mask).sum(1, keepdim=True)",
    4: """gain = ratio * advantages
    return -torch.where(advantages > 0, gain.min(1.2 * advantages), gain.min(0.8 * advantages))""",
    5: """drift = ((rollout_logp - logp.detach()) * mask).sum(1) / mask.sum(1).clamp(min=1)
    return 1 - ((drift > 0.1)[:, None] & (advantages < 0)).to(logp.dtype)""",
    6: "return ((loss * mask).sum(1) / mask.sum(1).clamp(min=1)).sum() / num_sequences",
    7: "return (logp - ref_logp) ** 2 / 2",
    8: "return ((group[:, None] == group) & (rewards[:, None] != rewards)).any(1)",
}
WRONG = [
    (1, "equal", "return [float(a in c) for c, a in zip(completions, answer)]"),
    (1, "numbers", "return [float(c.splitlines()[-1].strip() == a) for c, a in zip(completions, answer)]"),
    (2, "isolation", "return rewards - rewards.mean()"),
    (2, "ties", "return rewards - torch.stack([rewards[group == g].mean() for g in group])"),
    (3, "equal", "return logp - old_logp"),
    (3, "padding", "return (logp - old_logp).sum(1, keepdim=True)"),
    (4, "equal", "return -ratio.clamp(0.8, 1.2) * advantages"),
    (4, "equal", "return -torch.max(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)"),
    (5, "gradient", RIGHT[5].replace(".detach()", "").replace("return 1 -", "return torch.exp(0 * logp) -")),
    (5, "equal", RIGHT[5].replace("rollout_logp - logp.detach()", "logp.detach() - rollout_logp")),
    (6, "split", "return (loss * mask).sum() / mask.sum().clamp(min=1)"),
    (6, "padding", "return loss.mean(1).sum() / num_sequences"),
    (7, "equal", "return logp - ref_logp"),
    (7, "finite", "return (ref_logp - logp).exp() + (logp - ref_logp) - 1"),
    (8, "equal", "return rewards > 0"),
    (8, "isolation", "return torch.full_like(group, rewards.unique().numel() > 1, dtype=torch.bool)"),
]


def graded(number: int, body: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Return the exit code of `rlm lesson --check`, its data, and its text, of the starter with this body."""
    file = folder / "my.py"
    assert CliRunner().invoke(app, ["lesson", str(number), "--write", str(file)]).exit_code == 0
    file.write_text(file.read_text().replace("raise NotImplementedError", body))
    found = CliRunner().invoke(app, ["lesson", str(number), "--check", str(file), "--json"])
    data = json.loads(found.stdout)
    return found.exit_code, data, render_grade(data)


@pytest.mark.parametrize("number", RIGHT)
def test_right_solution_is_graded_right(number: int, tmp_path: Path) -> None:
    code, data, text = graded(number, RIGHT[number], tmp_path)
    assert (code, set(data["laws"].values())) == (0, {None}), text
    assert text.startswith("right")


@pytest.mark.parametrize(
    ("number", "law", "body"),
    [pytest.param(*case, marks=pytest.mark.full if place % 4 else ()) for place, case in enumerate(WRONG)],
)
def test_wrong_solution_is_graded_by_the_law_that_it_violates(number: int, law: str, body: str, tmp_path: Path) -> None:
    code, data, text = graded(number, body, tmp_path)
    broken = [name for name, report in data["laws"].items() if report]
    law = "equal" if law == "ties" and broken[0] == "equal" else law  # a few examples may lack a mean that is rounded
    assert (code, broken[0]) == (1, law), text
    words = [f"violates the law '{law}'", "example", *(["expected", "got"] if law == "equal" else [])]
    assert all(word in text for word in words), text


def test_the_oracle_tells_what_a_sound_part_of_other_values_does(tmp_path: Path) -> None:
    assert "yours: scale 0.0 of the exact gradient" in graded(7, "return logp - ref_logp", tmp_path)[2]
    (tmp_path / "my.py").unlink()
    _, data, _ = graded(3, "return logp - old_logp", tmp_path)
    reference, found = data["oracle"]
    assert reference["bias"] == 0
    assert found["bias"] > 0.01


def test_every_exercise_is_listed_and_mistakes_are_errors(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["lesson"]).stdout
    assert [line[3:] for line in listed.splitlines()] == [lesson["title"] for lesson in LESSONS]
    assert len(LESSONS) == len(RIGHT)
    shown = CliRunner().invoke(app, ["lesson", "7"]).stdout
    assert "rlm lesson 7 --check" in shown
    advantage = tmp_path / "my.py"
    assert CliRunner().invoke(app, ["lesson", "2", "--write", str(advantage)]).exit_code == 0
    for arguments, words in {
        ("9",): "allowed: 1 to 8",
        ("3", "--check", str(advantage)): "expected one part of the hook rlm_importance, got 0",
        ("2", "--check", str(tmp_path / "missing.py")): "Invalid value for '--check': file",
        ("2", "--write", str(advantage)): "exists",
    }.items():
        found = CliRunner().invoke(app, ["lesson", *arguments])
        assert found.exit_code == 2
        assert words in found.stderr
