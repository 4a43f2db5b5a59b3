"""Value of a formula as `rlm explain` displays it, on a batch: an evaluator of the notation of docstrings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch

_SPELLING = {"−": "-", "·": "*", "²": "**2", "½": "0.5*", "^": "**", "≥": ">=", "≤": "<=", "∞": "inf"}
_GROUP = ("mean_g", "std_g", "mean_others", "std_others", "mean_role", "std_role", "mean_same", "Σ₊", "Σ₋")
OPERATORS = ("Σₛ≤ₜ", "Σₛ<ₜ", "Σₜ", "Σⱼ", "Σₖ", "Σ_env", "Σ", "meanₜ", "mean", "std", "var", *_GROUP)
"""Operators on the product that follows them."""
_OPERATOR = re.compile(rf"(?<!\w)({'|'.join(OPERATORS)}) ")
_FUTURE = re.compile(r"Σₗ (?:(\([^()]*\)|[^\s()]+)ˡ )?([^()]+?)ₜ₊ₗ")
"""A discounted sum of what follows."""
_DEFINITION = re.compile(r"(?:, | and )(?=\S+(?: Z)? = )")


def sides(formula: str, symbols: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the value of each right side of ``a = b = c, with d = …``."""
    known = dict(symbols)
    statement, *rest = formula.split(", with ")
    for definition in reversed([x for text in rest for x in _DEFINITION.split(text)]):
        name, expression = definition.split(" = ", 1)
        expression = re.sub(r" over the \w+$|, the .*$", "", expression)
        known[_plain(name)] = _value(expression, known)
    return [_value(side, known) for side in statement.split(" = ")[1:]]


def _value(expression: str, known: Mapping[str, Any]) -> Any:
    """Return the value of ``a``, or of ``a where A, b where B, else c``."""
    *cases, default = re.split(r", else ", expression, maxsplit=1)
    value = _term(default, known)
    for case in reversed(_commas(cases[0]) if cases else []):
        chosen, condition = case.split(" where ")
        holds = math.prod(_term(part, known) for part in condition.split(" and "))
        value = torch.where(torch.as_tensor(holds).bool(), torch.as_tensor(_term(chosen, known)).double(), value)
    return value


def _commas(text: str) -> list[str]:
    """Return the parts between the commas outside parentheses."""
    return re.split(r", (?![^()]*\))", text)


def _plain(text: str) -> str:
    """Return a text without subscripts; a token's reward r and process reward ρ keep theirs, as another symbol."""
    text = _FUTURE.sub(lambda match: f"FUTURE({match[1] or 1}, {match[2]}ₜ)", text)
    text = re.sub(r"(\w)ₜ₊₁", r"NEXT(\1)", text).replace("rₜ", "r_token").replace("rₖ", "r_named")
    text = _OPERATOR.sub(lambda match: f"OP{OPERATORS.index(match[1])} ", text)
    return re.sub("[ᵢₜⱼₛₖ]", "", text)


def _end_of_product(text: str, start: int) -> int:
    """Return where the product ends that begins at `start`: at a sum, a quotient or a closing parenthesis."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth < 0 or (depth == 0 and text[place] in "+−/,<>≤≥"):
            return place
    return len(text)


def _term(expression: str, known: Mapping[str, Any]) -> Any:
    """Return the value of an expression with implicit products."""
    text = _plain(re.sub(r"\|([^|]+)\|", r"abs(\1)", expression))
    while match := re.search(r"(OP\d+) ", text):
        end = _end_of_product(text, match.end())
        text = f"{text[: match.start()]}{match[1]}({text[match.end() : end]}){text[end:]}"
    names = sorted(known, key=len, reverse=True)
    token = re.compile("|".join([*map(re.escape, names), r"\d+\.?\d*(?:e-?\d+)?", r"[><]=?", r"\S"]))
    code, before = "", ""
    for found in token.findall(text):
        word = f"known[{found!r}]" if found in known else _SPELLING.get(found, found)
        is_value = found in known or found[0] in "(½" or found[0].isdecimal()
        is_call = found == "(" and before in known and callable(known[before])
        was_value = before in known or before in (")", "²") or before[:1].isdecimal()
        code += ("*" if is_value and was_value and not is_call else "") + word
        before = found
    return eval(code, {"known": known, "inf": math.inf})


def symbols_of(batch: Batch, *, in_loss: bool, unbiased: bool, by_prompt: bool) -> dict[str, Any]:
    """Return symbol → value, or a function, on a batch that is a whole optimizer step.

    In the scoring phase (not `in_loss`) completions without tokens count, and a number per completion is one number.
    A sum is over the step, or `by_prompt` over a group.
    """
    mask, logp, group, rewards = batch.mask, batch.logp, batch.group, batch.rewards.unsqueeze(1)
    count = mask.sum(1, keepdim=True)
    trained = mask.any(1, keepdim=True) if in_loss else torch.ones_like(mask[:, :1])
    same = (group.unsqueeze(1) == group) & trained.squeeze(1)
    label = torch.zeros_like(group) if batch.named_rewards.get("role") is None else batch.named_rewards["role"]
    role = label.unsqueeze(1) == label
    right = (batch.advantages if in_loss else rewards)[:, :1] > 0

    def total(x: Any, among: torch.Tensor = mask) -> torch.Tensor:
        return torch.as_tensor(x).expand(mask.shape).where(among, 0.0).sum(1, keepdim=True)

    def each(x: torch.Tensor) -> torch.Tensor:
        return x if x.shape[1] == 1 else total(x)

    def mean(x: Any) -> torch.Tensor:
        return total(x) / count.clamp(min=1)

    def every(x: Any) -> torch.Tensor:
        x = torch.as_tensor(x).double()
        return x[:, 0] if x.shape[1] == 1 else x.expand(mask.shape)[mask]

    def over(related: torch.Tensor, combine: Any = torch.sum) -> Any:
        """Return a function of one number per completion, which combines those of related completions."""

        def combined(x: Any) -> torch.Tensor:
            x = torch.as_tensor(x).double()
            x = x.expand(len(mask), x.shape[1] if x.dim() else 1)
            x = x.where(mask, 0.0) if x.shape[1] == mask.shape[1] > 1 else x
            return torch.stack(
                [combine(x[row], 0) if row.any() else x.new_full(x.shape[1:], torch.nan) for row in related]
            )

        return combined

    def average(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.nanmean(dim)

    def spread(x: torch.Tensor, dim: int) -> torch.Tensor:
        keep = ~x.isnan()
        freedom = keep.sum(dim) - int(unbiased)
        return ((x - x.nanmean(dim)) ** 2).nansum(dim).div(freedom).sqrt().where(freedom > 0, 0.0)

    def future(discount: Any, x: Any) -> torch.Tensor:
        x, carry, sums = torch.as_tensor(x).expand(mask.shape), torch.zeros(len(mask)).double(), []
        for t in reversed(range(mask.shape[1])):
            decay = torch.as_tensor(discount).expand(len(mask), 1)[:, 0]
            carry = torch.where(mask[:, t], x[:, t] + decay * carry, carry)
            sums.append(carry)
        return torch.stack(sums[::-1], 1)

    def following(x: torch.Tensor) -> torch.Tensor:
        return future(0, x).roll(-1, 1).where(torch.arange(mask.shape[1]) < mask.shape[1] - 1, 0.0)

    def until(x: Any) -> torch.Tensor:
        return x.where(mask, 0.0).cumsum(1)

    def least(x: Any, y: Any) -> torch.Tensor:
        return torch.minimum(*torch.broadcast_tensors(torch.as_tensor(x).double(), torch.as_tensor(y).double()))

    def subsets(of: torch.Tensor, size: int) -> torch.Tensor:
        return torch.tensor([[float(math.comb(int(n), size))] if n >= 0 else [0.0] for n in of.flatten()]).double()

    def top(x: torch.Tensor, share: float) -> torch.Tensor:
        return x[mask].sort(descending=True).values[max(1, int(share * int(mask.sum()))) - 1]

    def two_way(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()

    logs = {"log π_old": batch.old_logp, "log π_ref": batch.ref_logp, "log π_T": batch.teacher_logp, "log π": logp}
    logs |= {"log π_rollout": batch.rollout_logp}
    exps = {name.removeprefix("log "): x.exp() for name, x in logs.items()}
    at_token = {f"{name}(y)": x for name, x in (logs | exps).items()}
    others = same & ~torch.eye(len(mask), dtype=torch.bool)
    operators = {
        "Σₛ≤ₜ": until,
        "Σₛ<ₜ": lambda x: until(x) - x.where(mask, 0.0),
        "Σₜ": total,
        "Σⱼ": over(same),
        "Σₖ": lambda x: x.nansum(1, keepdim=True),
        "Σ_env": lambda x: total(x, batch.observation_mask & trained),
        "Σ": lambda x: over(same)(each(x)) if by_prompt else each(x)[trained].sum(),
        "meanₜ": mean,
        "mean": lambda x: total(x).sum() / mask.sum() if in_loss else every(x).mean(),
        "std": lambda x: spread(every(x), 0),
        "var": lambda x: spread(every(x), 0) ** 2,
        "mean_g": over(same, average),
        "std_g": over(same, spread),
        "mean_others": over(others, average),
        "std_others": over(others, spread),
        "mean_role": over(role, average),
        "std_role": over(role, spread),
        "mean_same": over(same & role, average),
        "Σ₊": over(same & right.squeeze(1)),
        "Σ₋": over(same & ~right.squeeze(1)),
    }
    spreads = over(same, spread)(rewards)
    size, prompts = over(same)(1.0), len(group[trained.squeeze(1)].unique())
    ranked = [rewards[row, 0].sort(descending=True).values.tolist() for row in same]
    return {
        **logs,
        **exps,
        **at_token,
        **{f"OP{OPERATORS.index(name)}": function for name, function in operators.items()},
        "log μ": batch.rollout_logp,
        "w": batch.ratio if in_loss else over(same)((rewards < 1).double()),
        "log w": logp - batch.old_logp,
        "Â": batch.advantages,
        "r": rewards,
        "r_token": batch.token_rewards,
        "r_named": torch.stack([*batch.named_rewards.values()], 1),
        "weight": 1.0,
        "r₁": torch.tensor([[row[0] if row else 0.0] for row in ranked]).double(),
        "r₂": torch.tensor([[row[1] if len(row) > 1 else sum(row)] for row in ranked]).double(),
        "r(greedy)": over(same & batch.sources["greedy"], average)(rewards).where(
            ~batch.sources["greedy"][:, None], torch.nan
        ),
        "ρ": batch.dense_rewards,
        "truncated": batch.truncated.unsqueeze(1),
        "H(π)": batch.entropy,
        "H": batch.entropy,
        "H̄": mean(batch.entropy),
        "Σᵥ π(v)²": batch.sum_pi_squared,
        "n": (count.clamp(min=1) if in_loss else count).double(),
        "N": mask.sum().double(),
        "M": (batch.observation_mask & trained).sum().clamp(min=1).double()
        if in_loss
        else (spreads == 0).sum().double(),
        "L": batch.max_completion_length,
        "G": size,
        "B": trained.sum().double(),
        "P": prompts,
        "V": batch.values,
        "V_old": batch.old_values,
        "R": batch.returns,
        "x": batch.loss,
        "e": math.e,
        "FUTURE": future,
        "NEXT": following,
        "mean_g": (lambda x: (x / size)[trained].sum() / prompts) if by_prompt else over(same, average),
        "mean_i": over(same, average) if by_prompt else lambda x: x[trained].sum() / trained.sum(),
        "mean_m": lambda x: x,
        "C": subsets,
        "KL₂": two_way,
        "top": top,
        "quantile": lambda x, share: torch.quantile(x[mask].float(), share) if mask.any() else 0.0,
        "clip": torch.clamp,
        "min": least,
        "max": lambda x, y: -least(-x, -y),
        "exp": torch.exp,
        "log": torch.log,
        "abs": torch.abs,
        "sign": torch.sign,
        "σ": torch.sigmoid,
        "sg": torch.Tensor.detach,
        "sqrt": torch.sqrt,
        "√": torch.sqrt,
    }
