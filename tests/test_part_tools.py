"""Tools of scoring parts: texts, a forward pass, continuations, scores; and access to the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_trainer import clipped, eighths, logged, trainer

from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Part
from rlm_plugins.rewards.fault import Fault, FaultLog
from rlm_plugins.rewards.trl_adapter import setup_parts, trl_reward
from rlm_plugins.stage import Reward
from rlm_plugins.workers import distributed as processes


def advantage(target: Any) -> Any:
    return Part("rlm_advantages", "tried", "test", target).bind({})


SEEN: dict[str, Any] = {}


def record_arguments(
    rewards,
    mask,
    old_logp,
    prompts,
    inputs,
    prompt_ids,
    completion_ids,
    logprobs_of,
    generate,
    rewards_of,
    tokenizer,
    log,
):  # type: ignore[no-untyped-def]
    """Record all arguments, and the results of the tools."""
    SEEN.update(locals())
    SEEN["logp"] = logprobs_of(prompt_ids, completion_ids)
    SEEN["scores"] = rewards_of(prompts, completion_ids, inputs)
    prefixes = [ids[: len(ids) // 2] for ids in completion_ids]
    SEEN["rest"], SEEN["prefixes"] = generate(prompts, prefixes), prefixes
    SEEN["greedy"] = [generate(prompts, greedy=True) for _ in range(2)]
    log("found", SEEN["scores"].mean())
    return rewards - rewards.mean()


def test_scoring_parts_get_all_text_data(tmp_path: Path) -> None:
    equation_trainer = trainer(tmp_path, clipped(advantage=advantage(record_arguments)), max_steps=1)
    equation_trainer.train()
    seen, rows = SEEN, range(8)
    assert seen["tokenizer"] is equation_trainer.tokenizer
    assert [row["prompt"] for row in seen["inputs"]] == seen["prompts"]
    assert seen["prompt_ids"] == equation_trainer.prompt_ids(seen["prompts"])
    lengths = [len(ids) for ids in seen["completion_ids"]]
    assert seen["mask"].sum(1).tolist() == lengths
    assert torch.equal(seen["logp"], seen["old_logp"]), "padded otherwise, it would differ"
    assert torch.equal(seen["scores"], seen["rewards"])
    assert logged(equation_trainer, "advantage/found") == [pytest.approx(seen["rewards"].mean().item())]
    assert seen["greedy"][0] == seen["greedy"][1]
    assert len({tuple(row) for row in seen["rest"]}) > 1
    for i in rows:
        assert len(seen["prefixes"][i]) + len(seen["rest"][i]) <= equation_trainer.max_completion_length
        text = equation_trainer.tokenizer.decode(seen["completion_ids"][i], skip_special_tokens=True)
        assert seen["rewards"][i] == eighths([text])[0]


def test_scores_of_other_completions(tmp_path: Path) -> None:
    """The reward is None for an empty text; columns are passed, and only trained completions log metrics."""

    def answers(completions: list[str], answer: list[str], log_metric: Any) -> list[float | None]:
        log_metric("recorded", 1.0)
        return [
            None if not text else float(text == solution) for text, solution in zip(completions, answer, strict=True)
        ]

    found: list[Any] = []

    def asks(rewards, prompts, inputs, rewards_of, tokenizer):  # type: ignore[no-untyped-def]
        texts = [row["answer"] for row in inputs[:2]] + ["", "e"]
        found.append(rewards_of(prompts[:4], [tokenizer(text)["input_ids"] for text in texts], inputs[:4]))
        return rewards

    equation_trainer = trainer(tmp_path, clipped(advantage=advantage(asks)), answers, max_steps=1)
    equation_trainer.train()
    assert found[0][[0, 1, 3]].tolist() == [1.0, 1.0, 0.0]
    assert found[0][2].isnan()
    assert len(logged(equation_trainer, "recorded")) == 1, "once, for the trained completions"


@pytest.mark.parametrize("policy", ["stop", "skip", "zero"])
def test_fault_on_extra_completions_is_reported(tmp_path: Path, policy: str) -> None:
    def touchy(completions: list[str]) -> list[float]:
        if "777" in completions:
            raise ValueError("not this one")
        return eighths(completions)

    actual: list[Any] = []

    def asks(rewards, prompts, inputs, rewards_of, tokenizer):  # type: ignore[no-untyped-def]
        actual.append(rewards_of(prompts[::4], [tokenizer(text)["input_ids"] for text in ("777", "1")], inputs[::4]))
        return rewards

    book, notes = FaultLog(), []
    reward = Reward("touchy", Part("rlm_rewards", "touchy", "test", touchy).bind({}), on_error=policy)
    functions = [trl_reward(reward, book)]
    pieces = {"rewards": [reward], "reward_funcs": functions, "faults": book, "log_faults": notes.extend}
    equation_trainer = trainer(tmp_path, clipped(advantage=advantage(asks)), touchy, pieces=pieces, max_steps=1)
    if policy == "stop":
        with pytest.raises(Fault, match="not this one"):
            equation_trainer.train()
        return
    equation_trainer.train()
    assert notes, "the sample is written down"
    expected = {"skip": torch.nan, "zero": 0.0}[policy]
    assert torch.equal(actual[0].nan_to_num(-1), torch.tensor([expected, eighths(["1"])[0]]).nan_to_num(-1))


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    def asks(rewards, prompts, generate):  # type: ignore[no-untyped-def]
        return generate(prompts, [[3]])

    equation_trainer = trainer(tmp_path, clipped(advantage=advantage(asks)), max_steps=1)
    with pytest.raises(PartError, match=r"called `generate` with lists of 8, 1 entries"):
        equation_trainer.train()


def test_rank_slices_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    class State:
        num_processes, process_index = 3, 0

    monkeypatch.setattr(processes, "processes", lambda: State)
    for count in range(8):
        found = []
        for State.process_index in range(3):
            found += list(range(count))[processes.rank_slice(count)]
        assert found == list(range(count))


class Guest:
    """Part that keeps the policy of `setup`."""

    def __init__(self, *, name: str = "") -> None:
        self.met: list[Any] = []

    def setup(self, policy: Any, results: Any) -> None:
        if results:
            raise KeyError("nobody")
        self.met.append(policy)

    def __call__(self, rewards: Any) -> Any:
        return rewards


def test_any_class_part_may_have_setup() -> None:
    part, policy = advantage(Guest), tiny.model()
    setup_parts([part, advantage(record_arguments)], policy, {})
    assert part.target.met == [policy]  # a function has no `setup`
    with pytest.raises(PartError, match=r"failed: KeyError: 'nobody'"):
        setup_parts([part], policy, {"sft": Path()})


class Reads(Guest):
    """Part that keeps policy and tokenizer of `setup`."""

    def setup(self, policy: Any, results: Any, tokenizer: Any) -> None:
        self.met += [policy, tokenizer]


def test_setup_gets_the_tokenizer_if_requested() -> None:
    part, policy, tokenizer = advantage(Reads), tiny.model(), tiny.tokenizer()
    setup_parts([part], policy, {}, tokenizer)
    assert part.target.met[-2:] == [policy, tokenizer]
