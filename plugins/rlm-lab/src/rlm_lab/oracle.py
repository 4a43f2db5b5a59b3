"""``rlm explain --bias``: is a gradient estimator biased? Exact expectations on a policy that can be enumerated.

The policy writes up to two tokens of ``a``, ``b`` and end: seven completions, nine logits. So expectations over every
possible group are sums: value, gradient, KL, the mean of the estimator and its standard deviation are exact to the
precision of float64. The log-probabilities are computed by hand here; parts and step are those of a training.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

from rlm_lab.convention_card import step_loss
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.lazy import torch
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import granularity_of
from rlm_plugins.report.objective_text import slots_of
from rlm_plugins.report.text_layout import columns, titled
from rlm_plugins.specs import SLOTS, Algorithm

Entry = dict[str, Any]

TOKENS = "ab$"
"""Tokens; the last one ends a completion."""
COMPLETIONS = ("$", "a$", "b$", "aa", "ab", "ba", "bb")
RIGHT = ("a$", "ab", "ba")
"""Completions with reward 1: one ``a``. They have one or two ordinary tokens, and may reach the limit."""
PREFIXES = ("", "a", "b")
LIMIT = 2
EXACT = 1e-9
"""Share of a gradient up to which it counts as parallel to the exact one."""


def logits(shift: float = 0.0) -> torch.Tensor:
    """Return logits (3 prefixes, 3 tokens) of a policy; `shift` makes another one."""
    base = torch.tensor([[0.4, -0.3, -0.9], [0.2, 0.5, -0.1], [-0.6, 0.3, 0.7]], dtype=torch.float64)
    return base + shift * torch.sin(torch.arange(9, dtype=torch.float64)).view(3, 3)


def token_logp(policy: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of every token of every completion, (7, 2), 0 for padding."""
    table = policy.log_softmax(1)
    zero = table.new_zeros(())
    rows = []
    for text in COMPLETIONS:
        places = [(PREFIXES.index(text[:n]), TOKENS.index(token)) for n, token in enumerate(text)]
        rows.append(torch.stack([table[place] for place in places] + [zero] * (LIMIT - len(text))))
    return torch.stack(rows)


def rewards() -> torch.Tensor:
    """Return the reward of every completion, (7,)."""
    return torch.tensor([float(text in RIGHT) for text in COMPLETIONS], dtype=torch.float64)


def oracle(equation: Equation, group_size: int = 4) -> Entry:
    """Compare the expected gradient of an equation with the gradient of the expected reward.

    Args:
        equation: The parts. Their loss is computed on every possible group, each an optimizer step of its own.
        group_size: Completions per group.

    Returns:
        ``value``: E[r]. ``parts``: Each part of the equation with its slot.

        ``gradients``: One entry for samples of the current policy, one for an older policy if there is a ratio.
        ``scale`` is the size along the exact gradient, relative to it. ``bias`` is the share of the norm that is not
        along it, 0 to 1. ``std`` is that of one group, relative to the mean; None without a gradient.

        ``advantages``: Per completion probability, reward, exact advantage r − E[r], and mean Â.

        ``penalties``: Of each that needs the reference policy the mean, the exact KL, and
        scale and bias of its gradient.

    Raises:
        RlmError: A part needs data that no enumerated policy has, such as a critic's values.
    """
    policy = logits().requires_grad_()
    probability = token_logp(policy).sum(1).exp()
    value = probability @ rewards()
    (exact,) = torch.autograd.grad(value, policy)
    alone = replace(equation, shapers=(), penalties=())  # shaped rewards would have another exact gradient
    samplers = {"current policy": policy.detach()}
    if equation.importance is not None:
        samplers["older policy"] = logits(0.35)
    found = {name: _expectation(alone, policy, sampler, group_size) for name, sampler in samplers.items()}
    gradients = [
        {"samples": name, **_compared(-mean, exact), "std": std if math.isfinite(std) else None}
        for name, (mean, std, _) in found.items()
    ]
    advantages = found["current policy"][2].tolist()
    table = zip(COMPLETIONS, probability.tolist(), rewards().tolist(), advantages, strict=True)
    return {
        "value": value.item(),
        "parts": [f"{HOOKS[part.part.hook].key} {part.part.name}" for part in equation.parts()],
        "group_size": group_size,
        "gradients": gradients,
        "advantages": [(text, p, r, r - value.item(), mean) for text, p, r, mean in table],
        "penalties": [_penalty(part) for part in equation.penalties if part.part.requires("ref_logp")],
    }


def measured(name: str, equation: Equation, group_size: int) -> Entry:
    """Return :func:`oracle` of an equation called `name`.

    Raises:
        RlmError: It needs what the enumerated policy does not have, or has no loss on some group.
    """
    try:
        return oracle(equation, group_size)
    except (RlmError, TypeError) as error:
        problem = error.problem if isinstance(error, RlmError) else "a term is for another source"
        raise RlmError(
            f"{name} cannot be measured: {problem}",
            hint="the policy of `--bias` has seven completions and their rewards: no critic, teacher, text, further "
            "reward or rollout source; `rlm explain grpo --bias` can be measured",
        ) from None


def _expectation(
    equation: Equation, policy: torch.Tensor, sampler: torch.Tensor, size: int
) -> tuple[torch.Tensor, float, torch.Tensor]:
    """Return the mean gradient of the loss over all groups, its relative standard deviation, and the mean Â.

    The mean Â is (7,): over all groups that contain the completion; of token advantages their mean over its tokens.
    """
    from rlm_plugins.equation.step import score

    probability = token_logp(sampler).sum(1).exp()
    mean, squares, advantage = torch.zeros_like(sampler), 0.0, torch.zeros(len(COMPLETIONS), dtype=torch.float64)
    for rows, weight in _groups(probability, size):
        scored = score(_batch(rows, policy, sampler, sampler), equation)
        tokens = scored.advantages.detach().expand(scored.mask.shape).where(scored.mask, 0.0)
        per_completion = tokens.sum(1) / scored.mask.sum(1).clamp(min=1)
        advantage.index_add_(0, torch.tensor(rows), per_completion * weight / size)
        if not scored.mask.any():  # a filter has left nothing of the group
            continue
        (gradient,) = torch.autograd.grad(step_loss(scored, equation), policy)
        mean += weight * gradient
        squares += weight * gradient.square().sum().item()
    variance = squares - mean.square().sum().item()
    norm = mean.norm().item()
    return mean, math.sqrt(max(variance, 0.0)) / norm if norm else math.inf, advantage / probability


def _groups(probability: torch.Tensor, size: int) -> Iterator[tuple[list[int], float]]:
    """Yield every multiset of completions with its probability."""
    for rows in combinations_with_replacement(range(len(COMPLETIONS)), size):
        orders = math.factorial(size) // math.prod(map(math.factorial, Counter(rows).values()))
        yield list(rows), orders * math.prod(probability[row].item() for row in rows)


def _batch(rows: Sequence[int], policy: torch.Tensor, sampler: torch.Tensor, reference: torch.Tensor) -> Batch:
    """Return a group as a generation batch."""
    rows, texts = list(rows), [COMPLETIONS[row] for row in rows]
    score = rewards()[rows]
    table = policy.detach().log_softmax(1)
    entropies = -(table.exp() * table).sum(1)
    entropy = torch.tensor(
        [[entropies[PREFIXES.index(t[:n])] if n < len(t) else 0.0 for n in range(LIMIT)] for t in texts]
    )
    return Batch(
        group=torch.zeros(len(rows), dtype=torch.long),
        mask=torch.tensor([[n < len(text) for n in range(LIMIT)] for text in texts]),
        truncated=torch.tensor([not text.endswith("$") for text in texts]),
        prompt_index=torch.zeros(len(rows), dtype=torch.long),
        max_completion_length=LIMIT,
        step=0,
        completion_ids=[[TOKENS.index(token) for token in text] for text in texts],
        rewards=score,
        named_rewards={"accuracy": score},
        logp=token_logp(policy)[rows],
        old_logp=token_logp(sampler)[rows],
        rollout_logp=token_logp(sampler)[rows],
        ref_logp=token_logp(reference)[rows],
        entropy=entropy.double(),
    )


def _penalty(part: Bound) -> Entry:
    """Return the mean of a penalty per completion beside the exact KL to the reference policy, and the gradients."""
    from rlm_plugins.equation.dispatch import call_part

    policy, reference = logits().requires_grad_(), logits(0.6)
    logp = token_logp(policy)
    probability = logp.sum(1).exp()
    kl = probability @ (logp - token_logp(reference)).sum(1)
    (exact,) = torch.autograd.grad(kl, policy, retain_graph=True)
    batch = _batch(range(len(COMPLETIONS)), policy, policy.detach(), reference)
    log_ratio = batch.logp - batch.logp.detach()
    batch = replace(batch, log_ratio=log_ratio, ratio=log_ratio.exp())
    terms = call_part(part, batch, neutral=0.0).where(batch.mask, 0.0).sum(1)
    mean = probability.detach() @ terms
    gradient = torch.zeros_like(exact)
    if mean.requires_grad:
        (gradient,) = torch.autograd.grad(mean, policy)
    return {"part": part.part.name, "mean": mean.item(), "kl": kl.item(), **_compared(gradient, exact)}


def _compared(gradient: torch.Tensor, exact: torch.Tensor) -> Entry:
    """Return the size of a gradient along the exact one, relative to it, and the share of its norm that is not."""
    scale = (gradient * exact).sum() / exact.square().sum()
    norm = gradient.norm()
    bias = ((gradient - scale * exact).norm() / norm).item() if norm > EXACT else 0.0
    return {"scale": scale.item(), "bias": 0.0 if bias < EXACT else bias}


def equation_of(name: str, registry: Registry, knobs: Mapping[str, Any] | None = None) -> Equation:
    """Return the equation of an algorithm, or that of `reinforce` with one part, and its knobs, in its slot.

    A policy loss or a token weight is measured with the ratio of each token. A ratio is measured by the loss −w Â; one
    ratio per completion by the mean over completions.

    Raises:
        RlmError: The name is unknown, or it samples no completions for an advantage.
    """
    if registry.offers("rlm_algorithms", name):
        algorithm = registry.find("rlm_algorithms", name, where="algorithm").target
    else:
        algorithm = _around(name, registry, knobs or {})
    if algorithm.advantage is None or algorithm.aggregator is None:
        raise RlmError(
            f"'{name}' samples no completions for an advantage", hint="`rlm explain algorithms` lists others"
        )
    return Equation.from_slots(slots_of(algorithm, registry))


def bias_of(part: Bound, group_size: int = 4) -> Entry:
    """Return scale, bias and std of an advantage, ratio or policy loss by itself, on samples of the current policy.

    Raises:
        RlmError: It needs data that no enumerated policy has.
    """
    registry, key = Registry(), HOOKS[part.part.hook].key
    slots = {**slots_of(registry.find("rlm_algorithms", "reinforce").target, registry), key: part}
    names = {"policy_loss": {"importance": "token"}, "importance": {"policy_loss": "unclipped"}}.get(key, {})
    if key == "importance" and granularity_of(part.target) == "sequence":
        names["aggregator"] = "sequence_mean"
    hooks = {info.key: hook for hook, info in HOOKS.items()}
    slots |= {slot: registry.find(hooks[slot], name).bind({}) for slot, name in names.items()}
    entry: Entry = oracle(Equation.from_slots(slots), group_size)["gradients"][0]
    return entry


def _around(name: str, registry: Registry, knobs: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm `reinforce` with one part in its slot."""
    base: Algorithm = registry.find("rlm_algorithms", "reinforce", where="algorithm").target
    for hook, info in HOOKS.items():
        if info.key in SLOTS and registry.offers(hook, name):
            spec = {"name": name, **knobs, **({"beta": 1.0} if "beta" in info.options else {})}
            slots: dict[str, Any] = {info.key: [spec] if info.many else spec}
            if info.key in ("policy_loss", "token_weights"):
                slots["importance"] = "token"
            if info.key == "importance":
                slots["policy_loss"] = "unclipped"
                if granularity_of(registry.find(hook, name).target) == "sequence":
                    slots["aggregator"] = "sequence_mean"
            return replace(base, **slots)
    known = [part.name for part in registry if HOOKS[part.hook].key in (*SLOTS, "algorithm")]
    raise RlmError(f"unknown algorithm or part '{name}'", hint=nearest(name, known) or "`rlm explain` lists the names")


def render(entry: Entry, name: str) -> str:
    """Return the result of :func:`oracle` as text."""
    lines = [("samples of", "scale", "bias", "std of a group", "")]
    for row in entry["gradients"]:
        verdict = "along the exact gradient" if row["bias"] == 0 else "biased"
        std, verdict = ("-", "no gradient") if row["std"] is None else (f"{row['std']:.3g}", verdict)
        lines.append((row["samples"], f"{row['scale']:.6g}", f"{row['bias']:.2%}", std, verdict))
    advantages = [("completion", "π", "r", "r − E[r]", "mean Â")]
    advantages += [(text, *(f"{x:.4f}" for x in numbers)) for text, *numbers in entry["advantages"]]
    penalties = [("penalty", "mean", "exact KL", "scale", "bias of its gradient")]
    for row in entry["penalties"]:
        numbers = (f"{row[key]:.4f}" for key in ("mean", "kl", "scale"))
        penalties.append((row["part"], *numbers, f"{row['bias']:.2%}" if row["scale"] else "no gradient"))
    groups = f"every group of {entry['group_size']} of {len(COMPLETIONS)} completions"
    head = f"{name}: {groups}, E[r] = {entry['value']:.6f}\n  {', '.join(entry['parts'])}"
    sections = titled("gradient", columns(lines)) + titled("advantage", columns(advantages))
    return head + sections + (titled("penalties", columns(penalties)) if entry["penalties"] else "")
