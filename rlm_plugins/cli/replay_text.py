"""Output of ``rlm replay`` as text."""

from __future__ import annotations

from typing import Any

from rlm_plugins.cli.text_layout import columns

Entry = dict[str, Any]
_HEAD = ("completion", "token", "text", "∂J/∂log π", "Â")
_NUMBERS = ("gradient", "advantage")


def render(data: Entry) -> str:
    """Return a replay as text."""
    title = f"step {data['step']} of {data['stage']}"
    lines = [f"{title}, which ended with: {data['fault']}" if data["fault"] else title]
    differences = data["differences"]
    lines.append(f"differs from the run: {', '.join(differences)}" if differences else "equal to the run, bit by bit")
    if data["gradient"]:
        lines.append("norm of the gradient: {recorded:.6g} in the run, {replayed:.6g} now".format(**data["gradient"]))
    before, after = data["recorded"], data["replayed"]
    rows = [("", "recorded", "replayed") if after else ("", "recorded")]
    for name in before:
        rows.append((name, _number(before[name]), *([_number(after[name])] if after else [])))
    lines += ["", columns(rows, indent="")]
    if data["tokens"]:
        title = "tokens that change most" if after else "tokens with the largest share of the gradient"
        table = [_HEAD, *(_token_row(token, is_change=bool(after)) for token in data["tokens"])]
        lines += ["", f"{title}:", columns(table, indent="  ")]
    return "\n".join(lines)


def _token_row(token: Entry, *, is_change: bool) -> tuple[str, ...]:
    cells = [_number(token[name]) for name in _NUMBERS]
    if is_change:
        cells = [f"{cell} → {_number(token[f'{name}_after'])}" for cell, name in zip(cells, _NUMBERS, strict=True)]
    return (str(token["row"]), str(token["position"]), repr(token["text"])[1:-1], *cells)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
