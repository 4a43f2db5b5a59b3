"""Texts of a data set as Arrow arrays: a check of all examples is a few calls, however many examples there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import methodcaller
from typing import Any

from rlm_plugins.data.images import without_images
from rlm_plugins.lazy import np, pc, pyarrow

SAMPLED = 512
"""Examples that are checked one by one, evenly spread over a data set; of a stream, the first ones."""


def spread(size: int, count: int | None = SAMPLED) -> Sequence[int]:
    """Return up to `count` numbers of examples, from the first to the last; None: all.

    >>> spread(10, 4), spread(3, 4)
    ([0, 3, 6, 9], range(0, 3))
    """
    if count is None or size <= count:
        return range(size)
    return [i * (size - 1) // (count - 1) for i in range(count)]


class Examples:
    """Examples that are read as columns, or picked by their numbers; without images, so that none is decoded.

    Args:
        rows: The examples; of a stream, the first `SAMPLED` are read.
        count: Size of the sample where a column is not read as a whole; None: all examples, one by one.
    """

    def __init__(self, rows: Any, count: int | None = SAMPLED) -> None:
        rows = without_images(rows)
        self.rows: Any = rows if hasattr(rows, "__len__") else list(islice(rows, SAMPLED))
        self.numbers = spread(len(self.rows), count)
        self.reads_columns = count is not None
        self._columns: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def sample(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Number and example of each in the sample."""
        return list(zip(self.numbers, self.picked(self.numbers), strict=True))

    def picked(self, numbers: Sequence[int]) -> list[Mapping[str, Any]]:
        """Return the examples with these numbers."""
        if not hasattr(self.rows, "select"):
            return [self.rows[number] for number in numbers]
        columns: dict[str, list[Any]] = self.rows[list(numbers)]
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def column(self, name: str) -> Any:
        """Return a column of all examples as an Arrow array; None where Arrow has no type for its values."""
        if name not in self._columns:
            self._columns[name] = self._read(name) if self.reads_columns else None
        return self._columns[name]

    def _read(self, name: str) -> Any:
        try:
            if hasattr(self.rows, "select_columns"):
                array = self.rows.with_format("arrow", columns=[name])[:].column(name).combine_chunks()
            else:
                array = pyarrow.array(list(map(methodcaller("get", name), self.rows)))
        except (ValueError, TypeError, AttributeError, OverflowError, pyarrow.ArrowException):
            return None
        return array if isinstance(array, pyarrow.Array) else None

    def texts(self, name: str, text: Callable[[Any], str], *, roles: bool = False) -> TextColumn:
        """Return the texts of a column: of all examples where Arrow has text or messages, else of the sample.

        With `roles` the text of a message begins with its role.
        """
        array = self.column(name)
        texts = None if array is None else _texts(array, roles)
        if texts is not None:
            return TextColumn(texts, np.arange(len(texts)))
        return TextColumn.of([text(example.get(name)) for _, example in self.sample], self.numbers)

    def forms(self) -> list[int]:
        """Return the number of the first prompt of each form: the roles and keys of its messages."""
        array = self.column("prompt")
        if array is None or not _is_messages(array.type):
            return []
        fields = [_field(array, field.name) for field in array.type.value_type]
        keys = [pc.cast(pc.cast(pc.is_valid(field), "int8"), pyarrow.large_string()) for field in fields]
        roles = pc.fill_null(pc.cast(_field(array, "role"), pyarrow.large_string()), "")
        blank = pyarrow.scalar(" ", pyarrow.large_string())
        form = _joined(array, pc.binary_join_element_wise(roles, *keys, blank))
        _, first = np.unique(form.dictionary_encode().indices.to_numpy(zero_copy_only=False), return_index=True)
        return sorted(first.tolist())[:SAMPLED]

    def unknown_role(self, known: Iterable[str]) -> tuple[int, str | None] | None:
        """Return number and role of the first prompt with a message of another role than the known ones."""
        array = self.column("prompt")
        if array is None or not _is_messages(array.type):
            return None
        roles = pc.cast(_field(array, "role"), pyarrow.string())
        position = pc.index(pc.is_in(roles, pyarrow.array([*known])), value=False).as_py()
        if position < 0:
            return None
        return pc.list_parent_indices(array)[position].as_py(), roles[position].as_py()

    def missing(self, name: str, names: Iterable[str]) -> list[int] | None:
        """Return the numbers of the examples without a value: null, not finite, or one of these names.

        None for lists, mappings, and values that Arrow has no type for.
        """
        array = self.column(name)
        if array is None or pyarrow.types.is_nested(array.type):
            return None
        mask = pc.is_null(array)
        if _is_text(array.type):
            text = pc.utf8_trim_whitespace(pc.utf8_lower(pc.cast(array, pyarrow.large_string())))
            mask = pc.or_(mask, pc.is_in(text, pyarrow.array([*names], pyarrow.large_string())))
        if pyarrow.types.is_floating(array.type):
            mask = pc.or_(mask, pc.invert(pc.fill_null(pc.is_finite(array), False)))
        numbers: list[int] = mask.to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        return numbers

    def repeated(self, texts: TextColumn, others: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the numbers of texts that occurred before: with equal and with differing values of other columns."""
        codes = texts.texts.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        original = first[inverse]
        repeated = original != np.arange(len(codes))
        numbers = texts.numbers[repeated]
        differs = np.zeros(len(numbers), dtype=bool)
        for name in others if len(numbers) else ():
            values = self._codes(name)
            differs |= values[numbers] != values[texts.numbers[original[repeated]]]
        return numbers[~differs].tolist(), numbers[differs].tolist()

    def _codes(self, name: str) -> Any:
        """Return a number per value of a column (N,): equal for equal values."""
        array = self.column(name)
        if array is None or pyarrow.types.is_nested(array.type):
            values = [example.get(name) for example in self.picked(range(len(self)))]
            array = pyarrow.array(list(map(repr, values)))
        return array.dictionary_encode("encode").indices.to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class TextColumn:
    """Texts of a column, of all examples or of a sample.

    Args:
        texts: (N,) Arrow array of text; null is "".
        numbers: (N,) NumPy array with the number of each example.
    """

    texts: Any
    numbers: Any

    @classmethod
    def of(cls, texts: Iterable[str], numbers: Sequence[int]) -> TextColumn:
        """Return texts of examples with these numbers."""
        encodable = [text.encode(errors="replace").decode() for text in texts]
        return cls(pyarrow.array(encodable, pyarrow.large_string()), np.array(numbers, dtype=int))

    def where(self, mask: Any) -> list[int]:
        """Return the numbers of the examples that a mask (N,) of Arrow selects."""
        numbers: list[int] = self.numbers[mask.to_numpy(zero_copy_only=False)].tolist()
        return numbers

    def blank(self) -> list[int]:
        """Return the numbers of the examples without a character that is visible."""
        return self.where(pc.equal(pc.utf8_trim_whitespace(self.texts), ""))

    def containing(self, text: str) -> list[int]:
        """Return the numbers of the examples with `text`."""
        return self.where(pc.match_substring(self.texts, text))

    def shared_with(self, other: TextColumn) -> list[int]:
        """Return the numbers of the examples whose text `other` has too."""
        return self.where(pc.is_in(self.texts, value_set=other.texts))

    def lengths(self) -> Any:
        """Return the characters of each text (N,), as a NumPy array."""
        return pc.utf8_length(self.texts).to_numpy(zero_copy_only=False)

    def normalized(self) -> TextColumn:
        """Return the texts in lower case, with one blank between words."""
        lower = pc.utf8_trim_whitespace(pc.utf8_lower(self.texts))
        return TextColumn(pc.replace_substring_regex(lower, r"\s+", " "), self.numbers)

    def longest(self, count: int) -> list[tuple[int, int]]:
        """Return bytes and number of the longest texts in bytes; of equal ones, the first comes first."""
        sizes = pc.binary_length(self.texts).to_numpy(zero_copy_only=False)
        order = np.argsort(-sizes, kind="stable")[:count]
        return list(zip(sizes[order].tolist(), self.numbers[order].tolist(), strict=True))

    def characters(self) -> set[str]:
        """Return every character of the texts."""
        return set("".join(self.texts.to_pylist()))


def _texts(array: Any, roles: bool) -> Any:
    """Return the text of each entry (N,) of an array of text or messages; None for another type."""
    if _is_text(array.type):
        return pc.fill_null(pc.cast(array, pyarrow.large_string()), "")
    if not _is_messages(array.type) or not _is_text(_field(array, "content").type):
        return None
    contents = pc.fill_null(pc.cast(_field(array, "content"), pyarrow.large_string()), "")
    if roles:
        named = pc.fill_null(pc.cast(_field(array, "role"), pyarrow.large_string()), "")
        contents = pc.binary_join_element_wise(named, contents, pyarrow.scalar(": ", pyarrow.large_string()))
    return _joined(array, contents)


def _is_text(kind: Any) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_null(kind))


def _is_messages(kind: Any) -> bool:
    """Return True for the type of a list of mappings with `role` and `content`."""
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if not is_list or not pyarrow.types.is_struct(kind.value_type):
        return False
    names = {field.name for field in kind.value_type}
    return {"role", "content"} <= names and _is_text(kind.value_type.field("role").type)


def _field(array: Any, name: str) -> Any:
    """Return a field of all messages, one after another."""
    return pc.struct_field(array.flatten(), name)


def _joined(array: Any, texts: Any) -> Any:
    """Return the texts of messages, one line each, joined per conversation of `array`."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pyarrow.array(np.concatenate([[0], np.cumsum(lengths)]), pyarrow.int64())
    lists = pyarrow.LargeListArray.from_arrays(offsets, texts)
    return pc.fill_null(pc.binary_join(lists, pyarrow.scalar("\n", pyarrow.large_string())), "")
