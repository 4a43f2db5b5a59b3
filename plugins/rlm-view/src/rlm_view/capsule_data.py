"""A capsule as plain data for the page: groups, completions, and a number per token for each quantity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.equation.statistics import kl_estimate
from rlm_plugins.errors import RlmError
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.run.trainer_callbacks import shown_columns
from rlm_view.capsule import Capsule, capsules_of, read_capsule
from rlm_view.replay import Replay
from rlm_view.replay_report import MALFORMED, replays
from rlm_view.tokens import completion_ids, gradient_of, token_texts

Entry = dict[str, Any]
TOKENS = 400_000
"""Most tokens of a page, over all capsules; beyond it, capsules between the first and the last are left out."""
_DIGITS = 4


def capsules_data(run: Path, log_line: Callable[[str], None]) -> list[Entry]:
    """Return the capsules of a run, oldest first.

    Args:
        run: Folder of the run.
        log_line: Called with one line about each damaged capsule, and one if some are left out.
    """
    entries: list[tuple[int, Entry]] = []
    budget, paths = TOKENS, capsules_of(run)
    for number, path in enumerate(_outside_in(paths)):
        try:
            entry = capsule_data(path)
        except RlmError as error:
            log_line(str(error))
            continue
        except MALFORMED as error:
            log_line(f"{path}: expected the contents of a training step: {type(error).__name__}: {error}")
            continue
        size = sum(len(completion["tokens"]) for completion in entry["completions"])
        if entries and size > budget:
            omitted = f"{len(paths) - number} of {len(paths)} capsules are left out"
            log_line(f"{run}: {omitted}, a page has {TOKENS} tokens at most")
            break
        budget -= size
        entries.append((paths.index(path), entry))
    return [entry for _, entry in sorted(entries, key=lambda item: item[0])]


def _outside_in(paths: Sequence[Path]) -> list[Path]:
    """Return the last path, the first, the middle one, …, so that any number of them spans the run.

    >>> [p.name for p in _outside_in([Path(c) for c in "abcde"])]
    ['e', 'a', 'c', 'b', 'd']
    """
    if len(paths) < 3:
        return list(reversed(paths))
    order, gaps = [len(paths) - 1, 0], [(0, len(paths) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle not in (low, high):
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [paths[i] for i in order]


def capsule_data(path: Path) -> Entry:
    """Return one capsule.

    Returns:
        ``step, stage, loss, fault, note, quantities, completions``. Each completion has ``group, prompt, columns,
        reward, rewards, advantage, truncated, tokens, mask, turns, values``; ``values`` holds per quantity one number
        per token, null where unknown.

    Raises:
        RlmError: The capsule is damaged.
    """
    capsule = read_capsule(path)
    result, note = None, ""
    try:
        result = replays(path, []).recorded
    except RlmError as error:  # a fault, a missing plugin, untrusted code: the page has the stored data only
        note = f"{error.where}: {error.problem}" if error.where else error.problem
    completions = _completions(capsule, result)
    quantities = list(dict.fromkeys(name for completion in completions for name in completion["values"]))
    return {
        "step": capsule.step,
        "stage": capsule.stage,
        "loss": None if result is None else _round(result.loss),
        "fault": capsule.fault.get("problem", ""),
        "note": note,
        "quantities": quantities,
        "completions": completions,
    }


def _completions(capsule: Capsule, result: Replay | None) -> list[Entry]:
    batch, ids = capsule.batch, completion_ids(capsule)
    prompts = (batch.prompts if batch is not None else None) or (capsule.sampled or {}).get("prompts") or []
    scores = {} if result is None else {"advantage": result.scored.advantages, "reward": result.scored.rewards}
    mask = capsule.scored.get("mask", None if batch is None else batch.mask)
    values = _token_values(capsule, result)
    inputs = (capsule.sampled or {}).get("inputs") or []
    entries = []
    for index, tokens in enumerate(ids):
        count = len(tokens)
        advantages = scores.get("advantage", capsule.scored.get("advantages"))
        rewards = scores.get("reward", None if batch is None else batch.rewards)
        entry: Entry = {
            "group": index if batch is None else int(batch.group[index]),
            "prompt": text_of(prompts[index]) if index < len(prompts) else "",
            "columns": shown_columns(inputs[index]) if len(inputs) == len(ids) else {},
            "reward": None if rewards is None else _round(rewards[index]),
            "rewards": {
                str(label): _round(x[index]) for label, x in ((batch.named_rewards if batch else None) or {}).items()
            },
            "advantage": None if advantages is None else _round(advantages[index].mean()),
            "truncated": bool(batch is not None and batch.truncated is not None and batch.truncated[index]),
            "tokens": token_texts(capsule.tokens, index, tokens),
            "mask": "1" * count if mask is None else "".join("1" if x else "0" for x in mask[index, :count].tolist()),
            "turns": [int(x) for x in capsule.turns[index]] if index < len(capsule.turns) else [],
            "values": {},
        }
        for name, (row_of, numbers) in values.items():
            row = row_of.get(index)
            if row is not None:
                entry["values"][name] = [_round(x) for x in numbers[row, :count].tolist()]
        entries.append(entry)
    return entries


def _token_values(capsule: Capsule, result: Replay | None) -> Mapping[str, tuple[dict[int, int], torch.Tensor]]:
    """Return for each quantity: index of a completion → row of the tensor, and the tensor (R, T)."""
    if result is None:
        return {}
    scored, step = result.scored, result.step
    all_completions = {index: index for index in range(len(scored.mask))}
    advantages = scored.advantages.expand(scored.mask.shape) * scored.mask
    values: dict[str, tuple[dict[int, int], torch.Tensor]] = {}
    if result.losses:
        in_step = {int(index): row for row, index in enumerate(result.rows.tolist())}
        mask, gradient = step.mask, gradient_of(result)
        nonzero = (step.advantages.expand(mask.shape) != 0) & mask
        numbers: dict[str, torch.Tensor | None] = {
            "share of the gradient": gradient,
            "advantage": None,
            "ratio": step.ratio,
            "clipped": (nonzero & (gradient == 0)).float(),
            "entropy": step.entropy,
            "log-prob": step.logp,
            "value": step.values,
        }
        if step.ref_logp is not None:
            numbers["KL to the reference"] = kl_estimate(step.ref_logp, step.logp, "k3")
        logged = {name: x for name, x in result.tokens.items() if name not in ("gradient", "ratio", "entropy")}
        for name, x in {**numbers, **logged}.items():
            if name == "advantage":
                values[name] = all_completions, advantages
            elif x is not None:
                values[name] = in_step, x.detach().float().expand(mask.shape) * mask
    return values or {"advantage": (all_completions, advantages)}


def _round(value: Any) -> float | None:
    """Return a number with four digits; None if it is not finite."""
    number = float(value)
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else None
