"""Untrusted recipes: hostile YAML is refused with its line, quickly, and without running anything."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hang_guard import hang_guard
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.yaml_strict import dump

ODD_BUT_RIGHT = {
    "a: 1e-6": 1e-6,
    "a: 1.": 1.0,
    "a: .5": 0.5,
    "a: 010": 10,
    "a: 0o17": 15,
    "a: 0xFF": 255,
    "a: 1_000": "1_000",
    "a: 1:30": "1:30",
    "a: no": "no",
    "a: Y": "Y",
    "a: tRUE": "tRUE",
    "a: True": True,
    "a: ~": None,
    "a:": None,
    "a: '1e-6'": "1e-6",
    "a: |\n  1\n": "1\n",
    "a: 2026-11-20": "2026-11-20",
    "a: 0b1": "0b1",
    "%YAML 1.2\n---\na: 1": 1,
    "\ufeffa: 1": 1,
    "a: 1\r\nb: 2\r\n": 1,
    "a: é 数": "é 数",
}


@pytest.mark.parametrize("text", ODD_BUT_RIGHT, ids=repr)
def test_scalars_follow_yaml_1_2(text: str, tmp_path: Path) -> None:
    found = yaml_strict.read(write(tmp_path, text)).data["a"]
    assert found == ODD_BUT_RIGHT[text]
    assert type(found) is type(ODD_BUT_RIGHT[text])


HOSTILE: list[tuple[str | bytes, int, str]] = [
    # tags: nothing is constructed, whatever they name
    ("a: !!python/object/apply:os.system ['touch /tmp/owned']", 1, "tags are not supported"),
    ("a: !!python/name:os.system", 1, "tags are not supported"),
    ("a: !include /etc/passwd", 1, "tags are not supported"),
    ("!!str a: 1", 1, "tags are not supported"),
    ("%TAG ! tag:x,2000:\n---\na: !b 1", 3, "tags are not supported"),
    # anchors, aliases, merges: no bombs, no action at a distance
    ("a: &x 1\nb: *x", 1, "anchors and aliases"),
    ("a: &x [*x]", 1, "anchors and aliases"),
    ("base: &b {x: 1}\na:\n  <<: *b", 1, "anchors and aliases"),
    ("a: &a [l,o,l]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nd: [*c,*c,*c]", 1, "anchors and aliases"),
    # keys
    ("a: 1\nb: 2\na: 3", 3, "duplicate key 'a', first on line 1"),
    ("t:\n  x: 1\n  y: 2\n  x: 1", 4, "t.x: duplicate key 'x', first on line 2"),
    ("a: 1\n'a': 2", 2, "duplicate key"),
    ("1: a", 1, "expected a string as key"),
    ("null: a", 1, "expected a string as key"),
    ("? [x, y]\n: 1", 1, "expected a string as key"),
    ("a: {[]: 1}", 1, "expected a string as key"),
    # numbers that are none
    ("a: .nan", 1, "no finite number"),
    ("a: 1e999", 1, "no finite number"),
    ("a: " + "9" * 5000, 1, "too many digits"),
    ("a: 0x" + "F" * 5000, 1, "too many digits"),
    # not one mapping
    ("", 1, "the recipe is empty"),
    ("null", 1, "the recipe is empty"),
    ("- a\n- b", 1, "got a list"),
    ("a: 1\n---\nb: 2", 2, "a second document"),
    # size and depth
    ("a: " + "[" * 21 + "]" * 21, 1, "more than 20 levels deep"),
    ("[" * 200_000, 1, "more than 20 levels deep"),
    ("- " * 100_000, 1, "more than 20 levels deep"),
    ("a: [" + "1," * 20_000 + "1]", 1, "more than 10000 values"),
    ("#" * 256_001, 0, "larger than 256 kB"),
    (b"a: 1\n" * 4_000_000, 0, "larger than 256 kB"),
    # broken text
    ("a: [1, 2", 1, "expected ',' or ']'"),
    ("a: 'x", 1, "unexpected end of stream"),
    ("a: b: c", 1, "mapping values are not allowed here"),
    ("a:\n\tb: 1", 2, "indents with spaces"),
    ("a: 1\n  b: 2", 2, "mapping values are not allowed"),
    ("a: %x", 1, "cannot start any token"),
    ('a: "\\q"', 1, "unknown escape"),
    ('a: "\\ud800"', 1, "unsupported character"),
    ("a: \x01", 1, "U+0001"),
    ("%YAML 1." + "9" * 5000 + "\n---\na: 1", 0, "invalid YAML"),
    (b"a: \xff\xfe", 1, "expected UTF-8"),
    ("a: 1".encode("utf-16"), 1, "expected UTF-8"),
    (b"\x89PNG\r\n\x1a\n\x00\x00", 1, "expected UTF-8"),
]


@pytest.mark.parametrize(("text", "line", "words"), HOSTILE, ids=[repr(text[:30]) for text, _, _ in HOSTILE])
def test_hostile_files_are_rejected_with_their_line(text: str | bytes, line: int, words: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with hang_guard(), pytest.raises(RecipeError) as caught:
        yaml_strict.read(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path} line {line}" if line else str(path))
    assert len(str(caught.value)) < 500


def test_no_hostile_file_executed_code() -> None:
    assert len(HOSTILE) >= 40
    assert not Path("/tmp/owned").exists()


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "a: 1", "recipe.yaml")
    with pytest.raises(RecipeError, match=r"file not found[\s\S]*did you mean 'recipe.yaml'"):
        yaml_strict.read(tmp_path / "recpie.yaml")
    for path in (tmp_path / "no" / "such" / "place.yaml", Path("a\0b")):
        with pytest.raises(RecipeError, match="file not found"):
            yaml_strict.read(path)
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(RecipeError, match="expected a file, got a folder, pipe or device"):
            yaml_strict.read(path)


def test_every_value_keeps_its_line(tmp_path: Path) -> None:
    document = yaml_strict.read(write(tmp_path, "a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n"))
    assert document.data == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert document.lines == {(): 1, ("a",): 1, ("b",): 3, ("b", 0): 3, ("b", 1): 4, ("b", 1, "c"): 4, ("b", 1, "d"): 5}


BLOCKS = ["a", "a: ", "\n", "# ", "- ", "? ", "[", "{", "'", '"', ",", "&a ", "*a ", "!a ", "%"]
BLOCKS += ["|\n ", ":\n", "a b: ", "\t"]


@pytest.mark.parametrize("block", BLOCKS)
def test_largest_files_are_read_or_rejected_without_a_hang(block: str, tmp_path: Path) -> None:
    for prefix in ("", "a: ", 'a: "', "a: ["):
        path = write(tmp_path, (prefix + block * yaml_strict.MAX_BYTES)[: yaml_strict.MAX_BYTES])
        with hang_guard():
            assert len(str(refusal(path))) < 500


PIECES = [*"abc019:-?[]{},#&*!|>'\"%@`\\\n\t ~.<=", ": ", "\n  ", "\n- ", "a: ", "1e-6", "---\n", "...\n", "\\u"]
PIECES += ["&x ", "*x", "!!", "<<: "]
yamlish = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=60).map("".join)


@settings(max_examples=16 * settings().max_examples)
@given(yamlish)
def test_any_text_is_read_or_rejected(text: str) -> None:
    with contextlib.suppress(RecipeError):
        found = yaml_strict.parse(text, "fuzz.yaml").data
        assert yaml_strict.parse(dump(found), "again").data == found


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co"), exclude_characters="\ufeff"))
scalars = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False)
words = st.sampled_from(["1e-6", "no", "010", "1_0", ".inf", "~", "", "0o7", "1:30", "true", " x", "a: b", "- a", "#"])


@settings(max_examples=4 * settings().max_examples)
@given(
    st.dictionaries(
        texts | words,
        st.recursive(
            scalars | texts | words, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8
        ),
    )
)
def test_dumped_recipes_round_trip(data: dict[str, object]) -> None:
    assert yaml_strict.parse(dump(data), "dumped").data == data


def refusal(path: Path) -> RecipeError | None:
    try:
        assert isinstance(yaml_strict.read(path).data, dict)
    except RecipeError as error:
        return error
    return None


def write(folder: Path, text: str | bytes, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
