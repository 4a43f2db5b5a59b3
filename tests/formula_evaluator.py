"""Value of a formula as `rlm explain` displays it, on a batch: an evaluator of the notation of docstrings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch

_SPELLING = {"−": "-", "·": "*", "²": "**2", "½": "0.5*", "^": "**", "≥": ">=", "≤": "<=", "∞": "inf"}
_OPERATORS = {"Σₜ": "SUM_T", "Σⱼ": "SUM_G", "meanₜ": "MEAN_T"}
"""Operators on the product that follows them."""
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
    """Return a text without subscripts."""
    for operator, name in _OPERATORS.items():
        text = text.replace(operator, name)
    return re.sub("[ᵢₜⱼ]", "", text)


def _end_of_product(text: str, start: int) -> int:
    """Return where the product ends that begins at `start`: at a sum, a quotient or a closing parenthesis."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth < 0 or (depth == 0 and text[place] in "+−/,"):
            return place
    return len(text)


def _term(expression: str, known: Mapping[str, Any]) -> Any:
    """Return the value of an expression with implicit products."""
    text = _plain(re.sub(r"\|([^|]+)\|", r"abs(\1)", expression))
    for operator in _OPERATORS.values():
        while (start := text.find(f"{operator} ")) >= 0:
            first = start + len(operator) + 1
            end = _end_of_product(text, first)
            text = f"{text[:start]}{operator}({text[first:end]}){text[end:]}"
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


def symbols_of(batch: Batch) -> dict[str, Any]:
    """Return symbol → value, or a function, on a batch that is a whole optimizer step."""
    mask, logp, group = batch.mask, batch.logp, batch.group
    count = mask.sum(1, keepdim=True)
    same = (group.unsqueeze(1) == group).double()

    def total(x: Any) -> torch.Tensor:
        return torch.as_tensor(x).expand(mask.shape).where(mask, 0.0).sum(1, keepdim=True)

    def mean(x: Any) -> torch.Tensor:
        return total(x) / count.clamp(min=1)

    def over_group(x: torch.Tensor) -> torch.Tensor:
        return same @ (x.expand(len(mask), -1) * mask.any(1, keepdim=True))

    def clip(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return x.clamp(low, high)

    def least(x: Any, y: Any) -> torch.Tensor:
        return torch.minimum(*torch.broadcast_tensors(torch.as_tensor(x).double(), torch.as_tensor(y).double()))

    logs = {"log π_old": batch.old_logp, "log π_ref": batch.ref_logp, "log π_T": batch.teacher_logp, "log π": logp}
    logs |= {"log π_rollout": batch.rollout_logp}
    exps = {name.removeprefix("log "): x.exp() for name, x in logs.items()}
    at_token = {f"{name}(y)": x for name, x in (logs | exps).items()}
    return {
        **logs,
        **exps,
        **at_token,
        "w": batch.ratio,
        "log w": logp - batch.old_logp,
        "Â": batch.advantages,
        "r": batch.rewards.unsqueeze(1),
        "H(π)": batch.entropy,
        "H": batch.entropy,
        "H̄": mean(batch.entropy),
        "n": count.clamp(min=1).double(),
        "V": batch.values,
        "V_old": batch.old_values,
        "R": batch.returns,
        "e": math.e,
        "SUM_T": total,
        "MEAN_T": mean,
        "SUM_G": over_group,
        "mean_g": lambda x: over_group(x) / over_group(torch.ones(1, 1).double()),
        "clip": clip,
        "min": least,
        "max": lambda x, y: -least(-x, -y),
        "exp": torch.exp,
        "log": torch.log,
        "abs": torch.abs,
        "σ": torch.sigmoid,
        "sg": torch.Tensor.detach,
        "sqrt": torch.sqrt,
    }
