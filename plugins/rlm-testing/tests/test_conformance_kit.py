"""The kit itself: every law fails for the part that breaks it, and the report is readable."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from typing import Any, Literal

import pytest
import rlm_testing as testing
import torch
from _pytest.outcomes import Failed
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_testing import batches, conformance
from rlm_testing.law import LAWS, battery

from rlm_plugins.builtin.advantages import leave_one_out
from rlm_plugins.builtin.importance import sequence
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import PluginError
from rlm_plugins.specs import Algorithm, Environment, EnvironmentSpec

BROKEN: dict[tuple[str, str], Any] = {}
"""(hook, law) → a part that breaks this law and, if possible, no other."""


def breaks(hook: str, law: str) -> Any:
    def enter(part: Any) -> Any:
        BROKEN[hook, law] = part
        return part

    return enter


@breaks("rlm_advantages", "contract")
def knob_without_a_type(rewards, *, scale=1.0):
    return rewards - rewards


@breaks("rlm_advantages", "shape")
def one_number_too_few(rewards):
    return torch.zeros_like(rewards)[1:]


@breaks("rlm_filters", "shape")
def numbers_for_booleans(rewards):
    return (rewards > 0).float()


@breaks("rlm_penalties", "shape")
def a_pair_where_one_is_wanted(logp):
    return logp, logp


@breaks("rlm_policy_losses", "optional")
def logs_to_nobody(logp, advantages, log=None):
    log("advantage", advantages)
    return -advantages * logp


@breaks("rlm_advantages", "finite")
def standardised_without_care(rewards, group):
    means = torch.stack([rewards[group == g].mean() for g in group])
    stds = torch.stack([rewards[group == g].std() for g in group])
    return (rewards - means) / stds


@breaks("rlm_penalties", "finite")
def a_gradient_that_explodes(logp, ref_logp):
    return (logp - ref_logp).abs().sqrt() * 0 + (logp - logp.detach()).abs().sqrt()


@breaks("rlm_shapers", "precision")
def rounded_on_the_way(rewards):
    return rewards.half().to(torch.float16)


@breaks("rlm_shapers", "device")
def made_on_the_cpu(rewards):
    return rewards + torch.zeros(len(rewards), dtype=rewards.dtype)


@breaks("rlm_shapers", "repeat")
def noisy(rewards):
    return rewards + torch.rand_like(rewards)


@breaks("rlm_shapers", "purity")
def in_place(rewards):
    return rewards.mul_(2.0)


@breaks("rlm_token_weights", "gradient")
def weight_with_a_gradient(logp):
    return logp.exp()


@breaks("rlm_policy_losses", "gradient")
def loss_without_a_gradient(ratio, advantages):
    return -ratio.detach() * advantages


@breaks("rlm_advantages", "state")
class Forgetful:
    """Advantage that moves its baseline after every batch, and loses it in a checkpoint."""

    def __init__(self, *, rate: float = 0.5) -> None:
        self.rate, self.baseline = rate, 0.0

    def __call__(self, rewards):
        result = rewards - self.baseline
        self.baseline += self.rate * (rewards.mean().item() - self.baseline)
        return result

    def state_dict(self) -> dict[str, float]:
        return {}

    def load_state_dict(self, state: dict[str, float]) -> None:
        pass


@breaks("rlm_shapers", "state")
class Amnesiac:
    """Stateful advantage without `state_dict`."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rewards):
        self.calls += 1
        return rewards + self.calls


@breaks("rlm_aggregators", "padding")
def padding_counts(loss, num_tokens):
    return loss.sum() / num_tokens


@breaks("rlm_aggregators", "width")
def divides_by_the_width(loss, mask, num_sequences):
    return (loss * mask).sum() / (num_sequences * mask.shape[1])


@breaks("rlm_advantages", "order")
def compared_with_the_row_before(rewards):
    return rewards - rewards.roll(1)


@breaks("rlm_advantages", "isolation")
def batch_mean(rewards):
    return rewards - rewards.mean()


@breaks("rlm_aggregators", "split")
def own_count(loss, mask):
    return (loss * mask).sum() / mask.sum().clamp(min=1)


@breaks("rlm_policy_losses", "split")
def mean_over_the_micro_batch(ratio, advantages):
    return -ratio * advantages / len(ratio)


@breaks("rlm_shapers", "labels")
def pays_late_prompts(rewards, group):
    return rewards + group


@breaks("rlm_advantages", "ties")
def noise_amplified(rewards, group):
    means = torch.stack([rewards[group == g].mean() for g in group])
    stds = torch.stack([rewards[group == g].std(correction=0) for g in group])
    return (rewards - means) / (stds + 1e-9)


@breaks("rlm_aggregators", "empty")
def empty_rows_divide_by_zero(loss, mask, num_sequences):
    return ((loss * mask).sum(1) / mask.sum(1)).sum() / num_sequences


@breaks("rlm_rewards", "numbers")
def chokes_on_odd_text(completions):
    return [float(text) for text in completions]


@breaks("rlm_rewards", "order")
def first_come_first_served(completions):
    return [float(i) for i, _ in enumerate(completions)]


@breaks("rlm_rewards", "isolation")
def longest_of_all(completions):
    return [len(text) / max(1, *map(len, completions)) for text in completions]


@breaks("rlm_rewards", "repeat")
def dice(completions):
    return [random.random() for _ in completions]


@breaks("rlm_rewards", "purity")
def eats_its_tokens(completion_ids):
    return [float(len([ids.pop() for _ in ids[:1]])) for ids in completion_ids]


@breaks("rlm_rewards", "state")
class Bored:
    """Reward that decreases with every call, and restarts after a checkpoint."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, completions):
        self.times += 1
        return [1 / self.times for _ in completions]

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


@breaks("rlm_environments", "environment_spec")
def no_prompt():
    return EnvironmentSpec(train=[{"question": "2*2="}])


@breaks("rlm_environments", "held_out")
def asks_what_it_taught():
    rows = [{"prompt": "2*2="}, {"prompt": "2*3="}]
    return EnvironmentSpec(train=rows, test=rows[:1])


@breaks("rlm_environments", "repeat")
def other_rows_every_time():
    return EnvironmentSpec(train=[{"prompt": f"{random.random()}"}])


class _Moody(Environment):
    def step(self, action):
        return str(random.random()), 0.0, False


@breaks("rlm_environments", "episode")
def says_something_else_every_time():
    return EnvironmentSpec(train=[{"prompt": "2*2="}], environment=_Moody)


@breaks("rlm_rollouts", "completions")
def other_words_every_time(prompts):
    return {"completion_ids": [[random.randrange(10**9)] for _ in prompts]}


@breaks("rlm_generators", "continues")
def the_first_word_again(inputs):
    ids = inputs["input_ids"]
    return torch.cat([ids, ids[:, :1]], 1)


@breaks("rlm_samplers", "indices")
def one_too_far(size):
    return list(range(1, size + 1))


@breaks("rlm_models", "source")
def only_a_name():
    return "gpt2"


@breaks("rlm_algorithms", "algorithm")
def _row() -> Algorithm:
    return Algorithm(about="", source="", advantage="group_relativ")


BROKEN["rlm_algorithms", "algorithm"] = _row()


@breaks("rlm_samplers", "choice")
def twice_the_same(size, count):
    return [0] * count


@breaks("rlm_advantages", "update")
class Greedy:
    """Advantage that overwrites the rewards of its `update`."""

    def __call__(self, rewards):
        return rewards - rewards

    def update(self, rewards):
        rewards.zero_().add_(7.0)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@breaks("rlm_advantages", "bias")
def pays_for_length(rewards, mask):
    return rewards + mask.sum(1)


pays_for_length.is_unbiased = True  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the default number of examples."""
    monkeypatch.setattr(testing, "_examples", 20)


def verdict(test: Any, law: str) -> str:
    """Return what pytest would print, or an empty text if the law holds."""
    try:
        test(law)
    except Failed as failed:
        return str(failed)
    return ""


@pytest.mark.parametrize(("hook", "law"), BROKEN)
def test_a_law_catches_the_part_that_breaks_it(hook: str, law: str) -> None:
    output = verdict(conformance(hook, BROKEN[hook, law]), law)
    assert f"violates the law '{law}' of {hook}" in output
    assert "  found    " in output


def test_every_law_can_be_broken() -> None:
    assert {law.name for law in LAWS} == {law for _, law in BROKEN}


def test_every_law_is_named_in_the_documentation() -> None:
    words = set(re.findall(r"\w+", testing.__doc__ or ""))
    assert {law.name for law in LAWS} <= words


def test_a_bias_is_information_unless_the_part_claims_to_have_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a ratio per completion is printed with its size; the leave-one-out baseline has none."""
    monkeypatch.setattr(testing, "_bias", True)
    for hook, part in (("rlm_importance", sequence), ("rlm_advantages", leave_one_out)):
        assert verdict(conformance(hook, part), "bias") == ""
    biased, exact = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"sequence: scale 0\.\d+, bias [1-4]\d\.\d\d%, std of a group .* gradient", biased)
    assert exact.startswith("leave_one_out: scale 1, bias 0.00%")
    output = verdict(conformance("rlm_advantages", pays_for_length), "bias")
    assert "it claims to be unbiased, and its expected gradient has scale" in output


ONE_FLAW = {
    ("rlm_shapers", "device"): {"device"},
    ("rlm_shapers", "purity"): {"purity"},
    ("rlm_shapers", "labels"): {"labels"},
    ("rlm_token_weights", "gradient"): {"gradient"},
    ("rlm_policy_losses", "optional"): {"optional"},
    ("rlm_policy_losses", "split"): {"split", "empty"},  # an empty completion counts, too
    ("rlm_advantages", "isolation"): {"isolation", "ties"},  # the mean of equal numbers is rounded
    ("rlm_aggregators", "padding"): {"padding", "empty"},
    ("rlm_aggregators", "width"): {"width"},
    ("rlm_advantages", "update"): {"update"},
    ("rlm_samplers", "choice"): {"choice"},
    ("rlm_rewards", "isolation"): {"isolation"},
    ("rlm_environments", "held_out"): {"held_out"},
}


@pytest.mark.parametrize(("hook", "law"), ONE_FLAW)
def test_a_part_with_one_flaw_breaks_no_other_law(hook: str, law: str) -> None:
    """The report therefore names the cause."""
    test = conformance(hook, BROKEN[hook, law])
    assert {other.name for other in battery(test.subject) if verdict(test, other.name)} == ONE_FLAW[hook, law]


def test_a_report_names_law_part_knobs_and_a_small_example() -> None:
    def shifted(rewards, *, by: float = 1.0):
        return rewards - rewards.mean() - by

    output = verdict(conformance("rlm_advantages", shifted, knobs={"by": 2.0}), "isolation").splitlines()
    assert output[0].startswith("shifted(by=2.0) violates the law 'isolation' of rlm_advantages  (")
    assert output[1] == "  law      other groups change nothing: a group alone has the same result"
    assert output[2].startswith("  found    the result of group ")
    assert output[3].startswith("  example  rewards  [")
    assert len(output[3]) < 60  # two completions: shrunk by hypothesis


def test_a_crash_is_reported_with_its_place() -> None:
    def crashes(rewards):
        raise KeyError("answer")

    output = verdict(conformance("rlm_shapers", crashes), "shape")
    assert "it raised KeyError: 'answer', at " in output
    assert "test_conformance_kit.py:" in output


def test_a_declared_exception_passes_when_it_is_needed() -> None:
    test = conformance("rlm_advantages", batch_mean, exceptions={"isolation": "whole batch"})
    assert verdict(test, "isolation") == ""


def test_a_declared_exception_fails_when_it_is_not_needed() -> None:
    test = conformance("rlm_advantages", leave_one_out, exceptions={"isolation": "so they say"})
    output = verdict(test, "isolation")
    assert "obeys the law 'isolation'" in output
    assert "remove the exception «so they say»" in output


def test_an_unknown_hook_is_refused() -> None:
    with pytest.raises(PluginError, match="did you mean 'rlm_rewards'"):
        conformance("rlm_reward", chokes_on_odd_text)


def test_an_unknown_law_is_refused() -> None:
    with pytest.raises(PluginError, match="did you mean 'isolation'"):
        conformance("rlm_advantages", batch_mean, exceptions={"isolated": "x"})


def test_undescribed_column_is_rejected() -> None:
    def exact(completions, answer):
        return [float(c == a) for c, a in zip(completions, answer, strict=True)]

    with pytest.raises(PluginError, match=r"columns=\{'answer'"):
        conformance("rlm_rewards", exact)
    test = conformance("rlm_rewards", exact, columns={"answer": st.text(max_size=1)})
    assert [verdict(test, law) for law in ("numbers", "order", "isolation")] == ["", "", ""]


def test_rewards_may_be_async_trl_functions_or_classes() -> None:
    async def patient(completions):
        return [float(len(text)) for text in completions]

    def for_trl(completions, **kwargs):
        return [1.0 if kwargs["trainer_state"] else None for _ in completions]

    for reward in (patient, for_trl):
        test = conformance("rlm_rewards", reward)
        assert all(verdict(test, law.name) == "" for law in battery(test.subject))


def test_a_class_with_a_good_memory_passes() -> None:
    class Running(Forgetful):
        def state_dict(self) -> dict[str, float]:
            return {"baseline": self.baseline}

        def load_state_dict(self, state: dict[str, float]) -> None:
            self.baseline = state["baseline"]

    assert verdict(conformance("rlm_advantages", Running), "state") == ""


@settings(max_examples=50, deadline=None, database=None)
@given(batches())
def test_generated_batches_are_consistent(batch: Batch) -> None:
    rows, width = batch.mask.shape
    assert batch.logp.shape == batch.entropy.shape == batch.token_rewards.shape == (rows, width)
    assert batch.max_completion_length >= width
    assert batch.num_tokens >= batch.mask.sum()
    assert batch.num_sequences >= batch.mask.any(1).sum()
    assert (torch.stack(list(batch.sources.values())).sum(0) == 1).all(), "every row has one source"
    torch.testing.assert_close(batch.ratio, batch.log_ratio.exp())
    dense = batch.token_rewards.sum(1)
    torch.testing.assert_close(dense, batch.rewards * batch.mask.any(1))


def test_generated_batches_cover_edge_cases() -> None:
    """A hundred batches include empty completions, masked tokens, ties, groups of one and interleaved groups."""
    seen: set[str] = set()

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(batches())
    def look(batch: Batch) -> None:
        counts = batch.group.unique(return_counts=True)[1]
        starts = batch.mask.int().diff(dim=1) > 0
        seen.update(
            word
            for word, there in {
                "empty row": (~batch.mask.any(1)).any(),
                "hole": starts.any(),
                "group of one": (counts == 1).any(),
                "ragged groups": len(counts.unique()) > 1,
                "interleaved": (batch.group.diff() < 0).any(),
                "ties": len(batch.rewards.unique()) < len(batch.rewards),
                "one column": batch.mask.shape[1] == 1,
                "thin advantages": batch.advantages.shape[1] < batch.mask.shape[1],
            }.items()
            if there
        )

    look()
    assert len(seen) == 8, seen


def test_the_pytest_plugin_is_cheap() -> None:
    code = "import sys, rlm_testing; print(sorted({'torch', 'hypothesis', 'pydantic', 'trl'} & {*sys.modules}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


class _Gymnasium(Environment):
    """Environment with the `reset` of gymnasium."""

    def reset(self):
        return "begun", {}

    def step(self, action):
        return "", 0.0, True


def test_an_episode_begins_with_a_text() -> None:
    def environment_spec():
        return EnvironmentSpec(train=[{"prompt": "2*2="}], environment=_Gymnasium)

    output = verdict(conformance("rlm_environments", environment_spec), "episode")
    assert "it returned ('begun', {})" in output


class _Dice(Environment):
    """Environment whose second tool is random, and whose third has a parameter without annotation."""

    def double(self, number: int) -> int:
        return 2 * number

    def throw(self, name: str, faces: list[int], how: Literal["high", "low"]) -> str:
        if not faces:
            raise ValueError("no faces")
        return f"{name} {how} {random.random()}"

    def unknown(self, what) -> str:
        raise SystemExit


@pytest.mark.parametrize("tools", [False, True], ids=["environment", "functions"])
def test_an_episode_calls_every_tool(tools: bool) -> None:
    def environment_spec():
        rows = [{"prompt": "2*2="}]
        return (
            EnvironmentSpec(train=rows, tools=[_Dice().double, _Dice().throw])
            if tools
            else EnvironmentSpec(train=rows, environment=_Dice)
        )

    output = verdict(conformance("rlm_environments", environment_spec), "episode")
    assert "'name': 'throw'" in output
    assert "the first time" in output
