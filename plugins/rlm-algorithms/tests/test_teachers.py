"""Teachers: parts against the numbers of other libraries, and the section in runs of tiny models."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rlm_algorithms import distillation
from rlm_algorithms.teacher import Teacher
from rlm_algorithms.teacher_endpoint import Endpoint
from rlm_algorithms.teacher_scoring import TeacherScoring
from rlm_algorithms.teacher_sources import RunningAverage, average_config
from rlm_algorithms.vocabulary import Head, likeliest, logprobs_at, vocabulary_divergence
from teacher_server import serving
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from rlm_plugins import recipe
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.models.adapters import new_adapter, sequence_logprobs
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.stage import RunState

DATA = json.loads((Path(__file__).parent / "data" / "teachers.json").read_text())
CASE = {name: torch.tensor(x, dtype=torch.float64) for name, x in DATA["case"].items()}
MASK, ALL = CASE["mask"].bool(), torch.ones(8, dtype=torch.bool)
RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, lora: {r: 2, target_modules: all-linear}}
environment: {name: addition, digits: 1, train_rows: 8, test_rows: 0}
rewards: []
algorithm: opd
trainer: {max_steps: 2, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 4}
"""


def records(name: str) -> list[dict[str, Any]]:
    return [record for record in DATA["records"] if record["fn"] == name]


def close(actual: torch.Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


# -- parts against ms-swift 4.6 and TRL 1.16


@pytest.mark.parametrize("record", records("rlsd"), ids=lambda record: str(record["args"]["negative_only"]))
def test_rlsd_equals_swift(record: dict[str, Any]) -> None:
    data = CASE["advantages"].reshape(8, -1), CASE["teacher_logp"], CASE["old_logp"], ALL
    knobs = {**record["args"], "epsilon": record["args"]["clip"]}
    del knobs["clip"]
    weights = distillation.teacher_reweighting(*data, **knobs)
    close((weights * data[0]).where(MASK, 0.0), record["out"]["advantages"])


def test_opd_equals_swift() -> None:
    (record,) = records("opd@swift")
    gap = distillation.teacher_log_ratio(CASE["teacher_logp"], CASE["old_logp"], ALL, MASK)
    advantages = torch.tensor(record["out"]["advantages"], dtype=torch.float64)
    torch.testing.assert_close(gap, (advantages - CASE["advantages"].reshape(8, -1)).where(MASK, 0.0))


def test_sdar_equals_swift() -> None:
    (record,) = records("sdar")
    logp = CASE["logp"].clone().requires_grad_()
    loss = distillation.self_distillation(logp, CASE["teacher_logp"], ALL)[MASK].mean()
    loss.backward()
    close(loss.detach(), record["out"]["loss"])
    close(logp.grad, record["out"]["grad_logp"])  # type: ignore[arg-type]


def test_opd_equals_trl() -> None:
    """The gradient with respect to the logits; TRL's loss has another value, since a constant factor is inside."""
    (record,) = records("opd@trl")
    ids = CASE["completion_ids"].long()
    logits = CASE["student_logits"].clone().requires_grad_()
    teacher = CASE["teacher_logits"].log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)
    logp = logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)
    loss = distillation.sampled_distillation(logp, logp.detach(), teacher, ALL)[MASK].mean()
    loss.backward()
    close(loss.detach(), record["out"]["loss"])
    close(logits.grad, record["out"]["grad_logits"])  # type: ignore[arg-type]


@pytest.mark.parametrize("record", [*records("gkd"), *records("gkd_top")], ids=lambda record: str(record["args"]))
def test_gkd_equals_trl(record: dict[str, Any]) -> None:
    """Value and gradient of the whole vocabulary, by TRL's kernel in float32, and of the policy's top 4."""
    beta, top = record["args"]["beta"], record["args"].get("top")
    student, teacher = CASE["student_logits"].clone().requires_grad_(), CASE["teacher_logits"]
    zero = torch.zeros(MASK.shape, dtype=torch.float64)
    if top is None:
        head = Head(torch.eye(student.shape[-1]), None, 1.0, None)

        def divergence_of(beta: float) -> torch.Tensor:
            return vocabulary_divergence(student.float(), head, teacher, head, beta=beta, temperature=1.0)

        loss = distillation.divergence(divergence_of, zero, zero, ALL, beta=beta)
    else:
        ids = student.topk(top, -1).indices
        top_logp, teacher_top = (x.log_softmax(-1).gather(2, ids) for x in (student, teacher))
        rest: Any = "tail" if record["args"]["tail"] else "renormalize"
        loss = distillation.top_divergence(top_logp, teacher_top, zero, zero, ALL, beta=beta, rest=rest)
    loss = loss[MASK].mean()
    loss.backward()
    atol = 2e-6 if top is None else 1e-9
    for actual, name in ((loss.detach().double(), "loss"), (student.grad, "grad_logits")):
        expected = torch.tensor(record["out"][name], dtype=torch.float64)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=atol)


def test_divergence_of_states_equals_the_definition() -> None:
    """Hidden states of unequal widths, a bias, a soft cap, a scale and a temperature; both ways of computing it."""
    torch.manual_seed(0)
    hidden, other = torch.randn(2, 300, 8, requires_grad=True), torch.randn(2, 300, 6)
    policy, teacher = Head(torch.randn(11, 8), torch.randn(11), 0.5, 3.0), Head(torch.randn(11, 6), None, 2.0, None)
    ids = likeliest(other, teacher, 11)
    top, teacher_top = logprobs_at(hidden, policy, ids, 0.7), logprobs_at(other, teacher, ids, 0.7)
    expected = policy.log_softmax(hidden[1, 299:], 0.7)[0, ids[1, 299].long()]
    torch.testing.assert_close(top[1, 299], expected)
    zero, one = torch.zeros(2, 300), torch.ones(2, dtype=torch.bool)
    for beta in (0.0, 0.3, 1.0):
        whole = vocabulary_divergence(hidden, policy, other, teacher, beta=beta, temperature=0.7)
        of_top = distillation.top_divergence(top, teacher_top, zero, zero, one, beta=beta, rest="ignore")
        torch.testing.assert_close(whole, of_top, rtol=1e-4, atol=1e-5)
        gradients = [torch.autograd.grad(x.sum(), hidden, retain_graph=True)[0] for x in (whole, of_top)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_without_a_teacher_nothing_is_trained() -> None:
    none = ~ALL
    data = CASE["logp"], CASE["old_logp"], CASE["teacher_logp"]
    assert not distillation.teacher_log_ratio(data[2], data[1], none, MASK).any()
    assert not distillation.sampled_distillation(*data, none).any()
    assert not distillation.self_distillation(data[0], data[2], none).any()
    assert (distillation.teacher_reweighting(CASE["advantages"].reshape(8, -1), data[2], data[1], none) == 1).all()


# -- the running average


def policy(rank: int = 2) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=11, **sizes))
    config = LoraConfig(
        r=rank, lora_alpha=3, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return get_peft_model(base, config)


def test_average_is_that_of_the_product() -> None:
    """Of two policies ΔW is exact, since twice the rank holds both; A and B alone would give another one."""
    model = policy()
    adapter = new_adapter(model, "teacher", average_config(model), trainable=False)
    average = RunningAverage(model, adapter)
    average.update(1.0)
    layers = [(module, own, name) for module, own, name in average._layers()]
    assert len(layers) == 7
    before = [module.get_delta_weight(own) for module, own, _ in layers]
    for module, own, _ in layers:
        torch.nn.init.normal_(module.lora_A[own].weight)
        torch.nn.init.normal_(module.lora_B[own].weight)
    average.update(0.05)
    for old, (module, own, name) in zip(before, layers, strict=True):
        expected = 0.95 * old + 0.05 * module.get_delta_weight(own)
        torch.testing.assert_close(module.get_delta_weight(name), expected, rtol=1e-4, atol=1e-5)


# -- the section


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def run(folder: Path, name: str, *overrides: str) -> list[dict[str, Any]]:
    """Train, and return the lines of metrics of the steps."""
    loaded = recipe.load(folder / "recipe.yaml", overrides)
    result = train(loaded, Registry(load=loaded.load), folder / name)
    return [line for line in result.records() if "loss" in line]


def build(folder: Path, *overrides: str) -> Any:
    loaded = recipe.load(folder / "recipe.yaml", overrides)
    (stage,) = compose(loaded, Registry(load=loaded.load))
    return stage.trainer.build(stage, RunState())


def test_a_fresh_adapter_is_its_own_base(folder: Path) -> None:
    first, second = run(folder, "run", "teacher={model: base}", "trainer.num_iterations=1")
    assert first["advantage/reverse_kl"] == pytest.approx(0, abs=1e-6)
    assert first["reward"] == second["reward"] == 0


def test_a_model_teaches_without_a_reward(folder: Path) -> None:
    """The reverse KL to a model with other weights falls by half."""
    supervised = ["algorithm=sft", "model.lora=null", "trainer={max_steps: 30, learning_rate: 0.01}"]
    train(recipe.load(folder / "recipe.yaml", supervised), Registry(), folder / "teacher")
    settings = ["model.lora=null", "environment.train_rows=64", "trainer.per_device_train_batch_size=64"]
    settings += ["trainer.max_steps=30", "trainer.learning_rate=0.02", "trainer.lr_scheduler_type=constant"]
    lines = run(folder, "student", f"teacher={{model: {folder}/teacher/01-sft/model}}", *settings)
    gaps = [line["advantage/reverse_kl"] for line in lines]
    assert sum(gaps[-3:]) < sum(gaps[:3]) / 2
    assert all(line["reward"] == 0 for line in lines)


def test_a_model_that_adds_teaches_one_that_does_not(tmp_path: Path) -> None:
    """The reverse KL falls by half, and accuracy rises; with a learning rate of almost 0 neither. SFT is done once."""
    recipes = Path(__file__).parents[1] / "recipes"
    train(recipe.load(recipes / "distillation_teacher.yaml", []), Registry(), tmp_path / "teacher")
    falls, gains, first = [], [], list[str]()
    for name, rate, steps in (("student", 5e-4, 40), ("control", 1e-9, 10)):
        settings = [f"teacher={{model: {tmp_path}/teacher/01-sft/model}}", f"trainer.learning_rate={rate}"]
        settings = [f"stages[1].{setting}" for setting in (*settings, f"trainer.max_steps={steps}")]
        result = train(recipe.load(recipes / "distillation.yaml", [*settings, *first]), Registry(), tmp_path / name)
        first = [
            f"stages[0].model={{name: {tmp_path}/student/01-sft/model}}",
            "stages[0].trainer={max_steps: 1, learning_rate: 1e-12}",
        ]
        gaps = [line["advantage/reverse_kl"] for line in result.records() if "advantage/reverse_kl" in line]
        falls.append(sum(gaps[-5:]) / sum(gaps[:5]))
        curve = [line for line in result.records() if "held_out/accuracy" in line and line["stage"].endswith("opd")]
        gains.append(curve[-1]["held_out/accuracy"] - curve[0]["held_out/accuracy"])
    assert falls[0] < 0.5 < falls[1]
    assert gains[0] > 0.3
    assert abs(gains[1]) < 0.1


@pytest.mark.parametrize("model", ["live", "ema"])
def test_privileged_prompt_changes_the_log_probs(folder: Path, model: str) -> None:
    section = {"model": model, "prompt": "{prompt} {answer}", "ema": 1.0}
    lines = run(folder, model, f"teacher={json.dumps(section)}", "trainer.learning_rate=0.1")
    assert all(math.isfinite(line["advantage/reverse_kl"]) for line in lines)
    assert lines[-1]["advantage/reverse_kl"] != 0
    same = run(folder, f"{model}-same", f"teacher={{model: {model}, ema: 1.0}}", "trainer.learning_rate=0.1")
    assert [line["advantage/reverse_kl"] for line in same] == pytest.approx([0, 0], abs=1e-4), "its own prompt"


def test_group_best_shows_another_right_completion() -> None:
    scoring = TeacherScoring(Teacher(prompt="{prompt}|{group_best}"))
    rewards = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    context = SimpleNamespace(local_rows=lambda count: slice(0, count), group_size=4)
    components = SimpleNamespace(context=context, rewards=SimpleNamespace(total=lambda: rewards))
    scoring._trainer = SimpleNamespace(components=components)
    texts = [[{"role": "assistant", "content": f"c{row}"}] for row in range(8)]
    scoring.completions([{"prompt": f"p{row // 4}"} for row in range(8)], SimpleNamespace(completions=texts))
    shown = ["p0|c1", "p0|c3", "p0|c1", "p0|c1", "p1|c7", "p1|c7", "p1|c7"]
    assert scoring._prompts(scoring._teacher, range(8)) == dict(enumerate(shown)), "the last has no right one beside it"


def test_resume_has_the_same_average(folder: Path) -> None:
    section = ["teacher={model: ema, ema: 0.5}", "trainer.learning_rate=0.1", "trainer.save_steps=2"]
    whole = run(folder, "whole", *section, "trainer.max_steps=4")
    loaded = recipe.load(folder / "recipe.yaml", [*section, "trainer.max_steps=4"])
    shutil.copytree(folder / "whole", folder / "half")
    shutil.rmtree(folder / "half/01-opd/checkpoint-4", ignore_errors=True)
    shutil.rmtree(folder / "half/01-opd/adapter", ignore_errors=True)
    again = [line for line in train(loaded, Registry(), folder / "half", resume=True).records() if "loss" in line]
    assert [x["advantage/reverse_kl"] for x in again] == [x["advantage/reverse_kl"] for x in whole]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("teacher=none", r"requires `teacher_logp`: .* comes from a teacher"),
        ('teacher={prompt: "{prompt} {solution}"}', "no column 'solution'"),
        ("model.lora=null", "all weights are trained"),
        ("algorithm=gkd", "requires `divergence_of`: .*\n.*top: all"),
        ("algorithm=gkd_top", "requires `top_logp`: .*\n.*top: 32"),
        ("teacher={model: base, options: {a: 1}}", "`base` has no options"),
        ("teacher={by: answer}", "`by` and `of` belong together"),
        ("teacher={by: answer, of: {a: {tops: 3}}}", "the teacher 'a' is a model, or a mapping"),
        ("algorithm={name: opd, advantage: group_relative}", "requires rewards"),
    ],
)
def test_mistakes_are_refused_before_weights_are_loaded(folder: Path, override: str, problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        build(folder, "teacher={model: base}", override)


def test_a_teacher_with_another_tokenizer_is_refused(folder: Path) -> None:
    supervised = ["algorithm=sft", "model.lora=null", "trainer={max_steps: 1}"]
    train(recipe.load(folder / "recipe.yaml", supervised), Registry(), folder / "teacher")
    tokenizer = folder / "teacher/01-sft/model/tokenizer.json"
    table = json.loads(tokenizer.read_text())
    vocabulary = table["model"]["vocab"]
    vocabulary["1"], vocabulary["2"] = vocabulary["2"], vocabulary["1"]
    tokenizer.write_text(json.dumps(table))
    with pytest.raises(RlmError, match="is not the policy's"):
        run(folder, "run", f"teacher={{model: {folder}/teacher/01-sft/model}}")


# -- several tokens, several teachers, other sources


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with the policy's tokenizer and other weights."""
    folder = tmp_path_factory.mktemp("teacher")
    (folder / "recipe.yaml").write_text(RECIPE)
    overrides = ["algorithm=sft", "model={name: scratch, hidden: 24, layers: 1}", "trainer={max_steps: 3}"]
    train(recipe.load(folder / "recipe.yaml", overrides), Registry(), folder / "run")
    return folder / "run/01-sft/model"


TOP = {"top": "algorithm={name: gkd_top, policy_loss: {rest: tail}}", "all": "algorithm=gkd"}


@pytest.mark.parametrize("speed", ["speed=none", "speed={}"])
def test_all_tokens_equal_the_whole_vocabulary(folder: Path, teacher_folder: Path, speed: str) -> None:
    """The likeliest 10,000 tokens are all of them: values of both ways agree, with packed and padded passes."""
    teacher = f"model: {teacher_folder}"
    whole = run(folder, "all", TOP["all"], f"teacher={{{teacher}, top: all}}", speed)
    of_top = run(folder, "top", TOP["top"], f"teacher={{{teacher}, top: 10000, support: policy}}", speed)
    sampled = run(folder, "sampled", "algorithm=opd", f"teacher={{{teacher}}}", speed)
    for one, other in zip(whole, of_top, strict=True):
        assert one["policy_loss/divergence"] == pytest.approx(other["policy_loss/divergence"], abs=1e-5)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
        assert one["grad_norm"] > 1e-3
    assert whole[0]["advantage/reverse_kl"] == pytest.approx(sampled[0]["advantage/reverse_kl"], abs=1e-5)


def test_the_base_is_at_no_distance_from_a_fresh_adapter(folder: Path) -> None:
    for name, top in (("all", "all"), ("top", 3)):
        first, second = run(
            folder, name, TOP[name], f"teacher={{model: base, top: {top}}}", "trainer.learning_rate=0.1"
        )
        assert first["policy_loss/divergence"] == pytest.approx(0, abs=1e-6)
        assert second["policy_loss/divergence"] > first["policy_loss/divergence"]


def test_a_column_selects_the_teacher(folder: Path, teacher_folder: Path) -> None:
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1), "kind": "ab"[n % 2]} for n in range(8)]
    (folder / "rows.jsonl").write_text("".join(map("{}\n".format, map(json.dumps, rows))))
    data = f"environment={{name: dataset, path: {folder}/rows.jsonl}}"
    both = {"by": "kind", "of": {"a": {"model": "base"}, "b": str(teacher_folder)}}
    trainer = build(folder, data, f"teacher={json.dumps(both)}")
    scoring = TeacherScoring(Teacher(**both))
    trainer.observe([scoring])
    ids = {"prompt_ids": torch.tensor([[5, 6]] * 2), "completion_ids": torch.tensor([[7, 8]] * 2)}
    ids |= {name.replace("ids", "mask"): torch.ones_like(x) for name, x in ids.items()}
    scoring.completions([rows[0], rows[1]], SimpleNamespace(completions=["", ""]))
    of_base, of_other = scoring.sampled(ids)["teacher_logp"]
    base, other = (source.logp([[5, 6]], [[7, 8]])[0] for source in scoring._sources)
    torch.testing.assert_close(torch.stack([of_base, of_other]), torch.stack([base, other]))
    assert not torch.allclose(of_base, of_other, atol=1e-3)
    with pytest.raises(RecipeError, match="has the value 'b', for which there is no teacher"):
        build(folder, data, "teacher={by: kind, of: {a: base}}")


def local_score(folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder)
    return lambda ids: sequence_logprobs(model, [ids])[0].tolist()


def test_an_endpoint_equals_the_model_that_it_serves_and_its_end_loses_nothing(
    folder: Path, teacher_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ["trainer.max_steps=4", "trainer.save_steps=1", "trainer.learning_rate=0.1"]
    local = run(folder, "local", f"teacher={{model: {teacher_folder}}}", *steps)
    keys = "advantage/reverse_kl", "loss", "grad_norm"
    with serving(local_score(teacher_folder)) as server:
        section = {"model": f"http://127.0.0.1:{server.server_port}/v1", "options": {"retries": 0}}
        teacher = f"teacher={json.dumps({**section, 'same_as': str(teacher_folder)})}"
        server.fails_at = 4  # one request more for the test of eight sequences
        with pytest.raises(RlmError, match=r"it answers 503(.|\n)*no step is lost"):
            run(folder, "remote", teacher, *steps)
        server.fails_at = 10**9
        loaded = recipe.load(folder / "recipe.yaml", [teacher, *steps])
        lines = [x for x in train(loaded, Registry(), folder / "remote", resume=True).records() if "loss" in x]
    assert len(lines) == 4
    for line, expected in zip(lines, local, strict=True):
        assert [line[key] for key in keys] == pytest.approx([expected[key] for key in keys], abs=1e-5)
    # the batch that was scored and not trained on is found in the folder of the stage: the server is not needed
    shutil.rmtree(folder / "remote/01-opd/checkpoint-4")
    again = [x for x in train(loaded, Registry(), folder / "remote", resume=True).records() if "loss" in x]
    assert [x["loss"] for x in again] == [x["loss"] for x in lines]


def test_a_server_that_stops_inside_an_answer_is_named(folder: Path, teacher_folder: Path) -> None:
    """Half of an answer is an error as none is, and the next start goes on from the last checkpoint."""
    steps = ["trainer.max_steps=3", "trainer.save_steps=1"]
    with serving(local_score(teacher_folder)) as server:
        section = {"model": f"http://127.0.0.1:{server.server_port}/v1", "options": {"retries": 0}}
        teacher = f"teacher={json.dumps(section)}"
        server.cut_at = 3
        with pytest.raises(RlmError, match=r"IncompleteRead(.|\n)*no step is lost"):
            run(folder, "run", teacher, *steps)
        server.cut_at = 10**9
        loaded = recipe.load(folder / "recipe.yaml", [teacher, *steps])
        lines = [x for x in train(loaded, Registry(), folder / "run", resume=True).records() if "loss" in x]
    assert [line["step"] for line in lines] == [1, 2, 3]


def test_an_evicted_model_gives_the_same_run_and_is_estimated(
    folder: Path, teacher_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its weights are in the estimate unless they are freed; a teacher that is no better is named."""
    texts = ["rewards=[{name: accuracy, weight: 0}]", "environment.test_rows=3"]
    lines, held = [], []
    for resident in ("true", "false"):
        teacher = f"teacher={{model: {teacher_folder}, resident: {resident}}}"
        lines.append(run(folder, resident, teacher, *texts))
        (stage,) = compose(recipe.load(folder / "recipe.yaml", [teacher, *texts]), Registry())
        (section,) = (x for x in stage.sections.values() if isinstance(x, Teacher))
        held.append(section.memory_bytes(stage))
        assert section.warnings(stage) == (
            []
            if resident == "true"
            else [f"teacher: {held[0]:,} bytes of {teacher_folder} are in memory while it scores"]
        )
    keys = "loss", "grad_norm", "advantage/reverse_kl"
    assert [[x[key] for key in keys] for x in lines[0]] == [[x[key] for key in keys] for x in lines[1]]
    model = AutoModelForCausalLM.from_pretrained(teacher_folder)
    assert held == [4 * sum(x.numel() for x in model.parameters()), 0]
    assert "its answers to 3 held-out prompts earn 0, the policy's 0: it may have nothing to teach" in caplog.text


def test_replay_needs_no_teacher(folder: Path, teacher_folder: Path) -> None:
    view = pytest.importorskip("rlm_view.replay_report")
    from rlm_view.capsule import find_capsule
    from rlm_view.replay import differences_from_record

    with serving(local_score(teacher_folder)) as server:
        model = f"http://127.0.0.1:{server.server_port}/v1"
        run(folder, "run", f"teacher={{model: {model}}}", "capsule={every: 1}", "trainer.save_steps=1")
    result = view.replays(find_capsule(folder / "run", 2), [])
    assert differences_from_record(result.capsule, result.recorded) == []


LIES = {
    "other numbers for the same text": (lambda ids: [-1.0 - 0.1 * len(ids)] * (len(ids) - 1), None, "differ by"),
    "one number": (lambda ids: [-1.0] * (len(ids) - 1), None, "every token has the log-prob -1"),
    "probabilities": (lambda ids: [0.5] * (len(ids) - 1), None, "above 0 or not finite"),
    "not numbers": (lambda ids: [float("nan")] * (len(ids) - 1), None, "above 0 or not finite"),
    "other tokens": (lambda ids: [-1.0] * (len(ids) - 1), "tokens", "it scored token_id:99 where"),
    "other lengths": (lambda ids: [-1.0] * (len(ids) + 3), None, "log-probs for"),
    "no log-probs": (lambda ids: [-1.0] * (len(ids) - 1), "logprobs", "no log-probs of the prompt"),
    "no completions": (lambda ids: [-1.0] * (len(ids) - 1), "choices", "no log-probs of the prompt"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_endpoint_is_named(lie: str) -> None:
    score, removed, problem = LIES[lie]

    def change(answer: dict[str, Any]) -> None:
        if removed == "choices":
            answer.clear()
        if removed == "logprobs":
            answer["choices"][0]["logprobs"] = None
        if removed == "tokens":
            answer["choices"][0]["logprobs"]["tokens"][-2] = "token_id:99"

    with serving(score) as server:
        server.change = change
        endpoint = Endpoint(url=f"http://127.0.0.1:{server.server_port}/v1", retries=0)
        with pytest.raises(RlmError, match=problem):
            endpoint([[1, 2], [3]], [[4, 5, 6], [7, 8, 9]], 1.0)
    with pytest.raises(RlmError, match=r"ConnectionRefusedError|URLError"):  # after its end
        endpoint([[1, 2]], [[4, 5, 6]], 1.0)
    with pytest.raises(RlmError, match="temperature 1"):
        endpoint([[1, 2]], [[4, 5, 6]], 0.7)


PART = """
from rlm_plugins import hookimpl

def steady(completion_ids, *, logp: float = -2.0):
    \"\"\"The same log-prob for every token.\"\"\"
    return [[logp] * len(ids) for ids in completion_ids]

@hookimpl
def rlm_teachers():
    return {"steady": steady}
"""


def test_a_part_may_be_the_teacher(folder: Path) -> None:
    (folder / "part.py").write_text(PART)
    (folder / "recipe.yaml").write_text("plugins: {load: [./part.py]}\n" + RECIPE)
    gaps = []
    for logp in (-1.5, -2.5):
        lines = run(folder, str(logp), f"teacher={{model: steady, options: {{logp: {logp}}}}}")
        gaps.append(lines[0]["advantage/reverse_kl"])
    assert gaps[1] - gaps[0] == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(RecipeError, match="scores the sampled tokens only"):
        build(folder, "teacher={model: steady, top: 3}")
    with pytest.raises(RecipeError, match="unknown knob 'lgp'"):
        build(folder, "teacher={model: steady, options: {lgp: 1}}")
