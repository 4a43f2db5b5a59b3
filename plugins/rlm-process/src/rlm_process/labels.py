"""r of steps, by what came of going on from them: labels as a reward, and as a data set (hook ``rlm_shapers``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from pydantic import PositiveInt

from rlm_plugins.batch import Generate, Log, RewardsOf
from rlm_plugins.lazy import torch
from rlm_process.knobs import Steps
from rlm_process.pieces import pieces
from rlm_process.sampled import Questions, sampled, states
from rlm_process.steps import cutter


def label(scores: Sequence[float], *, right: float, soft: bool) -> float | None:
    """What a step is called, by the scores of answers that went on from it; None where there are none.

    Hard: whether any is right, soft: the share that is. Math-Shepherd, arXiv 2312.08935 eq. 3–4.

    >>> label([0.0, 1.0, 0.0, 0.0], right=1.0, soft=False), label([0.0, 1.0, 0.0, 0.0], right=1.0, soft=True)
    (True, 0.25)
    """
    hits = [score >= right for score in scores]
    if not hits:
        return None
    return sum(hits) / len(hits) if soft else any(hits)


def step_labels(
    token_rewards: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    completion_ids: Sequence[Sequence[int]],
    prompts: Sequence[Any],
    inputs: Sequence[Any],
    generate: Generate,
    rewards_of: RewardsOf,
    tokenizer: Any,
    step: int,
    log: Log,
    *,
    steps: Steps = "lines",
    continuations: PositiveInt = 8,
    soft: bool = False,
    right: float = 1.0,
    weight: float = 1.0,
    save: Path | None = None,
) -> Float[torch.Tensor, "B T"]:
    """Pays each step on its last token for whether the answer can still become right from there.

    r′ᵢₜ = rᵢₜ + weight · yₖ on the last token t of step k: yₖ is 1 if any of K answers written on from the state after
    step k is right (hard), or the share of them that is (`soft`); of the last step, whether the row itself is.
    Math-Shepherd, arXiv 2312.08935 eq. 3–4; K is `continuations`, 8 there.

    An answer is right from the reward `right` on: what the recipe's rewards say of it, before any shaper. With `save`
    every row is appended to that file, a line of JSON with ``prompt``, ``completions`` (the steps) and ``labels`` (true
    or false, or shares): what a process reward model is trained on (row `process_reward_model`), in the layout TRL
    calls stepwise supervision; `weight` 0 then only writes. The mean label is `shapers/label` in the log, the number of
    answers `shapers/continuations`.

    Pitfalls: an answer of many right steps earns more than one of few: pay for the whole as well, or compare within
    groups step by step. States that no reward could judge have no label (null, and no pay). A
    resumed run writes the steps that it takes again a second time (`step` says which).

    >>> from rlm_process.knobs import Every
    >>> told = dict(prompts=["?"], inputs=[{}], tokenizer=None, step=0, log=lambda name, x: None)
    >>> short = lambda prompts, ids, inputs: torch.tensor([float(len(each) < 4) for each in ids])
    >>> wrong = dict(generate=lambda asked, starts: [[9, 9]] * len(asked), rewards_of=short, steps=Every(every=2))
    >>> step_labels(torch.zeros(1, 3), torch.tensor([1.0]), [[4, 5, 6]], **told, **wrong).tolist()
    [[0.0, 0.0, 1.0]]
    """
    last = list(map(cutter(steps, tokenizer, where="shapers: step_labels.steps"), completion_ids))
    after = [line[1:] for line in states(group.tolist(), completion_ids, last)]
    ask = Questions(prompts, inputs, generate, rewards_of)
    scores = sampled(after, ask, continuations=continuations)
    own = [[] if said is None else [said] for said in ask.judged(range(len(prompts)), completion_ids)]
    labels = [
        [label(each, right=right, soft=soft) for each in (*(scores[state] for state in line), said)]
        for line, said in zip(after, own, strict=True)
    ]
    paid = torch.zeros_like(token_rewards)
    for row, cuts in enumerate(last):
        for end, said in zip(cuts, labels[row], strict=False):
            paid[row, end - 1] = weight * (said or 0.0)
    known = [said for cuts, line in zip(last, labels, strict=True) for said in line[: len(cuts)] if said is not None]
    log("label", sum(known) / max(1, len(known)))
    log("continuations", float(len(scores) * continuations))
    if save is not None:
        _append(
            save, [_record(*row, tokenizer, step) for row in zip(prompts, completion_ids, last, labels, strict=True)]
        )
    return paid


def _record(
    prompt: Any, ids: Sequence[int], last: Sequence[int], labels: Sequence[float | None], tokenizer: Any, step: int
) -> dict[str, Any]:
    """A row as a line of the data set."""
    said = pieces(ids, tokenizer)
    texts = ["".join(said[a:b]) for a, b in pairwise((0, *last))]
    return {"prompt": prompt, "completions": texts, "labels": list(labels[: len(texts)]), "step": step}


def _append(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """One process writes."""
    from rlm_plugins.distributed import processes

    if processes().is_main_process:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
