"""Environments: addition, data sets, held-out examples, and errors with a hint."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from rlm_plugins.builtin.environments import addition, dataset
from rlm_plugins.builtin.rewards import accuracy, format
from rlm_plugins.data.addition import Difficulty, Problem, count, draw
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Part

ROWS = [{"question": f"What is {n} + {n}?", "solution": str(2 * n), "level": n % 3} for n in range(20)]


# ---- addition


def test_addition_demonstrations_earn_both_rewards() -> None:
    environment_spec = addition(train_rows=200, test_rows=50, min_digits=1, digits=5)
    rows = [*environment_spec.train, *environment_spec.test]
    texts = [row["demonstration"] for row in rows]
    assert accuracy(texts, [row["answer"] for row in rows], mode="exact", untagged="wrong") == [1.0] * 250
    assert format(texts) == [1.0] * 250


def test_addition_errors_occur_at_carries_of_training_examples_only() -> None:
    careful, sloppy = (addition(train_rows=3000, test_rows=50, slip=slip) for slip in (0.0, 0.75))
    assert [row["prompt"] for row in careful.train] == [row["prompt"] for row in sloppy.train]
    assert list(careful.test) == list(sloppy.test)
    due = forgotten = 0
    for right, wrong in zip(careful.train, sloppy.train, strict=True):
        columns = wrong["demonstration"].removeprefix("<think>").split("</think>")[0].split(";")
        for before, after in pairwise(columns):
            owed = int(before.split("=")[1]) >= 10
            due, forgotten = due + owed, forgotten + (owed and "+0=" in after)
        assert format([wrong["demonstration"]]) == [1.0]
        follows = "".join(column[-1] for column in columns[::-1])
        lead = "1" if int(columns[-1].split("=")[1]) >= 10 else ""
        assert wrong["demonstration"].endswith(f"<answer>{lead}{follows}</answer>")
        assert wrong["answer"] == right["answer"]
    assert forgotten / due == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    "knobs", [{"digits": 0}, {"digits": 101}, {"slip": 1.5}, {"slip": math.nan}, {"train_rows": 0}, {"test_rows": -1}]
)
def test_addition_rejects_impossible_knobs(knobs: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(knobs))):
        Part("rlm_environments", "addition", "builtin", addition).bind(knobs)


# ---- dataset: where it is read from


KINDS = ["rows.jsonl", "rows.csv", "rows.parquet", "splits", "data"]


def _write(where: Path) -> str:
    """Write `ROWS` in the format of the name; a folder also has four rows of tests."""
    rows, lines = datasets.Dataset.from_list(ROWS), [json.dumps(row) + "\n" for row in ROWS]
    match where.name:
        case "rows.csv":
            rows.to_csv(where, index=False)
        case "rows.parquet":
            rows.to_parquet(where)
        case "splits":
            datasets.DatasetDict(train=rows, test=rows.select(range(4))).save_to_disk(where)
        case "data":
            where.mkdir()
            (where / "train.jsonl").write_text("".join(lines))
            (where / "test.jsonl").write_text("".join(lines[:4]))
        case _:
            where.write_text("".join(lines))
    return str(where)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirect the cache of data sets to the folder of the test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return _write(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_and_folder(kind: str, streaming: bool, tmp_path: Path) -> None:
    columns = {"answer": "solution"}
    environment_spec = dataset(path=_write(tmp_path / kind), prompt="question", columns=columns, streaming=streaming)
    rows = list(environment_spec.train)
    assert [row["prompt"] for row in rows] == [[{"role": "user", "content": row["question"]}] for row in ROWS]
    assert [str(row["answer"]) for row in rows] == [row["solution"] for row in ROWS]
    assert [row["level"] for row in rows] == [row["level"] for row in ROWS]
    assert list(environment_spec.test) == []


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", ["splits", "data"])
def test_a_test_split(kind: str, streaming: bool, tmp_path: Path) -> None:
    where = _write(tmp_path / kind)
    whole = dataset(path=where, prompt="question", test_split="test", streaming=streaming)
    part = dataset(path=where, prompt="question", test_split="test", test_rows=2, streaming=streaming)
    assert (len(whole.test), len(part.test)) == (4, 2)
    assert (len(list(whole.train)), len(list(part.train))) == (16, 18), "what is held out is not trained on"
    assert whole.test[0]["prompt"][0]["content"] == ROWS[0]["question"]


def test_a_large_set_is_streamed_lazily(path: str) -> None:
    with Path(path).open("a") as file:
        file.write('\n{"question": null, "solution": "", "level": 0}')
    environment_spec = dataset(path=path, prompt="question", streaming=True)
    assert len(list(islice(environment_spec.train, 20))) == 20
    with pytest.raises(RecipeError, match="row 20"):
        list(environment_spec.train)


# ---- dataset: prompts


def test_values_in_a_template_are_never_templates(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"q": "{secret} {0.__class__}", "secret": "s"}))
    environment_spec = dataset(path=str(tmp_path / "a.jsonl"), template="{q}", chat=False)
    assert environment_spec.train[0]["prompt"] == "{secret} {0.__class__}"


def test_a_system_message_precedes(path: str) -> None:
    environment_spec = dataset(path=path, prompt="question", system="Think.")
    assert environment_spec.train[0]["prompt"] == [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "What is 0 + 0?"},
    ]


def test_a_column_of_conversations_stays_one(tmp_path: Path) -> None:
    talks = [
        [{"role": "user", "content": "Hi"}],
        [{"role": "system", "content": "Own."}, {"role": "user", "content": "Ho"}],
    ]
    datasets.Dataset.from_list([{"prompt": talk} for talk in talks]).to_parquet(tmp_path / "a.parquet")
    plain = dataset(path=str(tmp_path / "a.parquet"))
    loaded = dataset(path=str(tmp_path / "a.parquet"), system="Ours.")
    assert [row["prompt"] for row in plain.train] == talks
    assert [row["prompt"][0]["content"] for row in loaded.train] == ["Ours.", "Own."]
    with pytest.raises(RecipeError, match=r"row 0.*: expected a prompt of text, got list\n  hint: .*`chat: true`"):
        dataset(path=str(tmp_path / "a.parquet"), chat=False)


def test_reserved_columns_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompts": "2+2?", "completions": "4", "x": 1}))
    environment_spec = dataset(path=str(tmp_path / "a.jsonl"), prompt="prompts", columns={"answer": "completions"})
    assert environment_spec.train[0] == {"prompt": [{"role": "user", "content": "2+2?"}], "answer": "4", "x": 1}


def test_max_examples(path: str) -> None:
    for streaming in (False, True):
        assert len(list(dataset(path=path, prompt="question", max_rows=7, streaming=streaming).train)) == 7
    assert len(dataset(path=path, prompt="question", max_rows=99).train) == 20


# ---- dataset: what is held out


def test_held_out_examples_depend_on_the_seed_and_are_not_trained_on(path: str) -> None:
    def asked(rows: Any) -> list[str]:
        return [row["question"] for row in rows]

    every = [row["question"] for row in ROWS]
    splits = set()
    for seed in range(6):
        environment_spec = dataset(path=path, prompt="question", test_rows=5, seed=seed)
        train, test = asked(environment_spec.train), asked(environment_spec.test)
        assert len(test) == 5
        assert sorted(train + test) == sorted(every)
        assert train == [q for q in every if q in train]  # in the order of the file
        splits.add(tuple(test))
    assert len(splits) > 1
    assert asked(dataset(path=path, prompt="question", test_rows=5, seed=5).test) == test


@pytest.mark.parametrize("streaming", [False, True])
def test_a_held_out_question_is_not_trained_on_where_it_is_repeated(tmp_path: Path, streaming: bool) -> None:
    rows = [{"prompt": f"question {n % 10}", "n": n} for n in range(40)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    environment_spec = dataset(path=str(tmp_path / "a.jsonl"), test_rows=3, streaming=streaming)
    tested = {row["prompt"][0]["content"] for row in environment_spec.test}
    trained = {row["prompt"][0]["content"] for row in environment_spec.train}
    assert len(environment_spec.test) == 3
    assert not tested & trained
    assert tested | trained == {row["prompt"] for row in rows}


# ---- dataset: errors with a hint


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"prompt": "qestion"}, r"environment.prompt: unknown column 'qestion'.*solution, level.*'question'\?"),
        ({"columns": {"answer": "solutoin"}}, r"environment.columns.answer: .*'solutoin'.*did you mean 'solution'\?"),
        ({"columns": {"completions": "solution"}}, "'completions' is a reserved name of rewards"),
        ({"template": "{qestion}"}, r"environment.template: unknown column 'qestion'.*did you mean 'question'\?"),
        ({"template": "\\boxed{}"}, r"environment.template: expected a column name.*written twice"),
        ({"template": "{question"}, r"environment.template: invalid template: expected '}'"),
        ({"template": "{question}", "prompt": "question"}, "exclude each other"),
        ({"prompt": "question", "system": "Hi", "chat": False}, "environment.system: `system` requires `chat: true`"),
        ({"prompt": "level"}, r"row 0 .*, line 1 of rows.jsonl: expected a prompt of text or messages, got int"),
        ({"prompt": "question", "split": "tran"}, r"rows.jsonl' cannot be read: Unknown split .tran.*'train'"),
        ({"prompt": "question", "revision": "v1"}, "environment.revision: .* no revisions"),
    ],
)  # fmt: skip
def test_mistakes_in_the_recipe(path: str, knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match="(?s)" + message):
        dataset(path=path, **knobs)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.json", "{nope", "bad.json' cannot be read: JSON parse error"),
        ("empty.jsonl", "", "empty.jsonl' cannot be read: it has no examples"),
        ("rows.xlsx", "x", r"suffix '.xlsx' of '.*rows.xlsx'\n  allowed: .json, .jsonl"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RecipeError, match=message):
        dataset(path=str(tmp_path / name), prompt="question")


@pytest.mark.parametrize("way", ["../secret.jsonl", "{}/secret.jsonl", "link"])
def test_a_data_folder_adds_no_file_of_another_folder(tmp_path: Path, way: str) -> None:
    (tmp_path / "secret.jsonl").write_text('{"prompt": "secret"}\n')
    folder = tmp_path / "data"
    folder.mkdir()
    if way == "link":
        (folder / "train.jsonl").symlink_to(tmp_path / "secret.jsonl")
    else:
        (folder / "README.md").write_text(
            f"---\nconfigs:\n- config_name: x\n  data_files: {way.format(tmp_path)}\n---\n"
        )
    with pytest.raises(RecipeError, match=r"data' has a file outside of it: .*secret"):
        dataset(path=str(folder))
    (folder / "train.jsonl").unlink(missing_ok=True)
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "train.jsonl").write_text('{"prompt": "mine"}\n')
    assert [row["prompt"][0]["content"] for row in dataset(path=str(folder)).train] == ["mine"]


def test_unreachable_hub_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    with pytest.raises(
        RecipeError, match=r"(?s)'someone/something' cannot be read: .*hint: .* did not respond within 5 s"
    ):
        dataset(path="someone/something")


def carries(problem: Problem) -> int:
    """Count the carries from digit sums: each carry replaces ten ones by one, so the digit sum loses nine."""
    digit_sum = [sum(map(int, str(n))) for n in (problem.a, problem.b, problem.a + problem.b)]
    return (digit_sum[0] + digit_sum[1] - digit_sum[2]) // 9


@pytest.mark.parametrize("digits", [1, 2, pytest.param(3, marks=pytest.mark.full)])
def test_count_equals_enumeration(digits: int) -> None:
    numbers = range(10 ** (digits - 1), 10**digits)
    found = Counter(carries(Problem(a, b)) for a, b in product(numbers, numbers))
    for low, high in product(range(digits + 2), range(digits + 2)):
        assert count(digits, low, high) == sum(n for k, n in found.items() if low <= k <= high)


@pytest.mark.parametrize(("low", "high"), [(0, 5), (0, 0), (5, 5), (2, 3)])
def test_sample_has_the_requested_length_and_carries(low: int, high: int) -> None:
    rng = random.Random(0)
    for _ in range(300):
        problem = draw(rng, 5, low, high)
        assert len(str(problem.a)) == len(str(problem.b)) == 5
        assert low <= carries(problem) <= high


def test_samples_are_uniform() -> None:
    rng, times = random.Random(0), 40_000
    drawn = Counter(draw(rng, 2, 1, 1) for _ in range(times))
    every = count(2, 1, 1)
    # chi-square over n cells has mean n − 1 and variance 2 (n − 1)
    expected = times / every
    missing = every - len(drawn)
    chi_square = sum((n - expected) ** 2 / expected for n in drawn.values()) + missing * expected
    assert missing >= 0
    assert abs(chi_square - (every - 1)) < 5 * (2 * (every - 1)) ** 0.5


@pytest.mark.parametrize(("a", "b"), [(347, 285), (999, 1), (5, 12345), (0, 0), (10**40 - 1, 10**40 - 1)])
def test_demonstrated_work_is_correct(a: int, b: int) -> None:
    columns, result = Problem(a, b).solve()
    assert result == str(a + b)
    for column in columns.split(";"):
        terms, total = column.split("=")
        assert sum(map(int, terms.split("+"))) == int(total)


def test_omitted_carries_change_the_result() -> None:
    answers = iter([True, False])
    columns, result = Problem(777, 777).solve(forget=lambda: next(answers))
    assert (columns, result) == ("7+7+0=14;7+7+0=14;7+7+1=15", "1544")


def test_one_prompt_in_eight_is_held_out() -> None:
    held = [Problem(a, b).held_out for a in range(100, 400) for b in range(a, 400)]
    assert sum(held) / len(held) == pytest.approx(1 / 8, abs=0.005)


def test_split_does_not_depend_on_the_seed() -> None:
    """Published figures depend on this split."""
    held = [p for p in product(range(10, 13), range(10, 20)) if Problem(*p).held_out]
    assert held == [(11, 13), (11, 14), (12, 16)]


@pytest.mark.parametrize(
    "kind", [Difficulty(range(3, 4), 0, 3), Difficulty(range(1, 4), 0, 3), Difficulty(range(2, 3), 1, 1)]
)
def test_no_seed_trains_on_a_test_prompt(kind: Difficulty) -> None:
    tests = {tuple(sorted(problem)) for problem in kind.tests(50)}
    assert len(tests) == 50
    for seed in range(40):
        trained = {tuple(sorted(problem)) for problem in islice(kind.training(seed), 1000)}
        assert not trained & tests


def test_larger_test_set_starts_with_the_smaller_one() -> None:
    kind = Difficulty(range(3, 4), 0, 3)
    assert kind.tests(100)[:10] == kind.tests(10)
    assert kind.tests(0) == []


def test_default_test_set_is_as_hard_as_all_prompts() -> None:
    """A model that omits every carry scores 30.2 % on all 3-digit sums, and nearly that on the 256 of the test set."""

    def survives(problem: Problem) -> bool:
        return problem.solve(forget=lambda: True)[1] == str(problem.a + problem.b)

    numbers = range(100, 1000)
    everywhere = sum(survives(Problem(a, b)) for a, b in product(numbers[::7], numbers[::11])) / (129 * 82)
    tests = Difficulty(range(3, 4), 0, 3).tests(256)
    assert everywhere == pytest.approx(0.55 * 0.55, abs=0.01)
    assert sum(map(survives, tests)) / 256 == pytest.approx(0.55 * 0.55, abs=0.01)


def test_too_large_test_set_is_an_error() -> None:
    with pytest.raises(RecipeError, match=r"expected 100 test problems, but only \d+ of this difficulty"):
        Difficulty(range(1, 2), 0, 1).tests(100)


def test_instruction_follows_the_question_or_is_a_template_around_it() -> None:
    def text(instruction: str) -> str:
        return str(addition(test_rows=1, instruction=instruction).test[0]["prompt"][0]["content"])

    question = text("")
    assert text("Think.") == f"{question}\n\nThink."
    assert text("User: {question} {x}. Assistant:") == f"User: {question} {{x}}. Assistant:"
