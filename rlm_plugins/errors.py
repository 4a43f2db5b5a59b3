"""Errors for users: a problem, its place, the allowed values and a hint; and the formatting of values in messages."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

ADAPTER = "{r: 16, lora_alpha: 32, target_modules: all-linear}"
"""`model.lora` in hints: without `lora_alpha` PEFT has 8, a scale of 0.5 at this rank, and short runs did not learn."""
TRAIN_ADAPTER = f"train an adapter: `model: {{lora: {ADAPTER}}}`"


class RlmError(Exception):
    """An error with its place and a remedy.

    Args:
        problem: The problem in one sentence.
        where: The recipe path (``rewards[0].weight``), plugin, file or sample.
        allowed: The allowed values.
        hint: The next step for the user.
    """

    def __init__(self, problem: str, *, where: str = "", allowed: str = "", hint: str = "") -> None:
        self.problem, self.where, self.allowed, self.hint = problem, where, allowed, hint
        lines = [f"{where}: {problem}" if where else problem]
        lines += [f"  allowed: {allowed}"] if allowed else []
        lines += [f"  hint: {hint}"] if hint else []
        super().__init__("\n".join(lines))

    def at(self, where: str) -> Self:
        """Return the same error, with the same cause, about another place."""
        moved = type(self)(self.problem, where=where, allowed=self.allowed, hint=self.hint)
        moved.__cause__ = self.__cause__
        return moved


class RecipeError(RlmError):
    """An invalid recipe."""


class PluginError(RlmError):
    """A plugin that breaks the contract of :mod:`rlm_plugins.hookspecs`."""


class PartError(RlmError):
    """A part that failed or returned an invalid value during a run."""


_OUT_OF_MEMORY = re.compile(
    "out of memory|n't allocate memory|not allocate memory|not enough memory|bad_alloc|ALLOC_FAILED"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if memory ran out, on a device or on the host; each library has its own spelling.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    (True, True)
    >>> is_out_of_memory(RuntimeError("expected finite logits")), is_out_of_memory(RlmError("out of memory"))
    (False, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | OSError) and _OUT_OF_MEMORY.search(str(error)) is not None


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return the choice closest to `word`, without case, as a question for a hint; empty if none is close.

    >>> nearest("aplha", ["alpha", "beta"])
    "did you mean 'alpha'?"
    >>> nearest("GRPO", ["rloo", "grpo"])
    "did you mean 'grpo'?"
    >>> nearest("adam", ["adalomo", "adamw_torch"])
    "did you mean 'adamw_torch'?"
    """
    close = _close(word, choices)
    return f"did you mean '{close}'?" if close else ""


def nearest_file(missing: Path, pattern: str = "*") -> str:
    """Return the file beside a missing one of the closest name without suffix, as a hint; empty if none is close."""
    beside = {path.stem: path.name for path in missing.parent.glob(pattern)}
    close = _close(missing.stem, beside)
    return f"did you mean '{beside[close]}'?" if close else ""


def mistyped(word: str, present: Iterable[str]) -> str:
    """Return the present name closest to a missing `word`, as a question for a hint; empty if none is close.

    >>> mistyped("beta", ["name", "bata"])
    "found 'bata': did you mean 'beta'?"
    """
    close = _close(word, present, cutoff=0.7)
    return f"found '{close}': did you mean '{word}'?" if close else ""


def _close(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    by_casefold = {choice.casefold(): choice for choice in choices}
    longer = [name for name in by_casefold if len(word) > 3 and name.startswith(word.casefold())]
    close = sorted(longer, key=len) or difflib.get_close_matches(word.casefold(), by_casefold, n=1, cutoff=cutoff)
    return by_casefold[close[0]] if close else ""


_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters but line feed and tab, marks of the direction of text, separators, characters without width
except the two joiners that Persian and Hindi spelling require, lone surrogates, tags."""
_CONTAINERS: dict[type, str] = {dict: "a mapping", list: "a list"}


def visible(text: str) -> str:
    r"""Return a text for a terminal: a character that would move the cursor, reorder the text or hide becomes its code.

    The code has the form of JSON, so that JSON remains the same data.

    >>> visible("a\x1b[2Kb\n"), visible("\u202eabc"), visible("grpo\u200b\U000e0041")
    ('a\\u001b[2Kb\n', '\\u202eabc', 'grpo\\u200b\\udb40\\udc41')
    """
    return _INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def describe(value: object) -> str:
    """Return a value as a phrase, for the end of "expected …, got …".

    >>> describe("1e-6"), describe(3), describe(True), describe(None), describe({"a": 1})
    ("the string '1e-6'", 'the number 3', 'true', 'null', 'a mapping')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the string {short(repr(value))}"
    if isinstance(value, int | float):
        return f"the number {value}"
    return next((name for kind, name in _CONTAINERS.items() if isinstance(value, kind)), type(value).__name__)


def expected(allowed: str, value: object) -> str:
    """Return the problem of a wrong value.

    >>> expected("a number", "1e-6")
    "expected a number, got the string '1e-6'"
    """
    return f"expected {allowed}, got {describe(value)}"


def either(choices: list[str]) -> str:
    """Return ``a, b or c``; of more than 12 choices the first 12 and the total number.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    if len(choices) > 12:
        return f"{', '.join(choices[:12])}, … ({len(choices)} in all)"
    return " or ".join(text for text in (", ".join(choices[:-1]), choices[-1]) if text)


def short(text: str, length: int = 60) -> str:
    """Return `text`, cut to `length` characters.

    >>> short("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def text_number(value: object) -> str:
    """Return a hint if `value` is a number in quotes; otherwise an empty string.

    >>> text_number("1e-6")
    'this is a string that looks like a number: remove the quotes'
    >>> text_number("grpo")
    ''
    """
    if isinstance(value, str):
        with suppress(ValueError):
            float(value)
            return "this is a string that looks like a number: remove the quotes"
    return ""
