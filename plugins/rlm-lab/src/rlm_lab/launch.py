"""``rlm launch``: the files and the command that start a recipe on several processes. Nothing is written or run."""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.resolve import located
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.options import arguments as config_of
from rlm_plugins.trainer.options import check_sharding
from rlm_plugins.workers.distributed import planned

CONFIG = "accelerate.yaml"
PORT = 29500
VERL: dict[str, Any] = tomllib.loads((files("rlm_lab") / "verl.toml").read_text())
"""Slot, or kind of setting → what verl calls it."""
ACTOR = "actor_rollout_ref.actor"


@dataclass(frozen=True)
class Launch:
    """A recipe, and the machines and processes that train it.

    Args:
        recipe: The recipe.
        overrides: ``key=value`` of the command.
        nodes: Number of machines.
        processes: Processes of each machine, one per GPU.
        sharding: `none` (DDP), `fsdp2`, `zero2` or `zero3`.
        gpu: Kind of GPU, as the service names it.
    """

    recipe: Path
    overrides: Sequence[str] = ()
    nodes: int = 1
    processes: int = 1
    sharding: str = "none"
    gpu: str = "H100"

    @property
    def name(self) -> str:
        """Name of the job."""
        return re.sub(r"[^a-z0-9]+", "-", self.recipe.stem.lower()).strip("-") or "rlm"

    @property
    def total(self) -> int:
        """Processes of all machines."""
        return self.nodes * self.processes

    @property
    def train(self) -> str:
        """The module and its arguments, quoted for a shell."""
        return f"-m rlm_plugins train {shlex.join([str(self.recipe), *self.overrides])}"

    def config(self) -> str:
        """Return the config of accelerate, with the machines and processes of this launch."""
        name = "ddp" if self.sharding == "none" else self.sharding
        text = (files("rlm_lab") / "accelerate_configs" / f"{name}.yaml").read_text()
        text = re.sub(r"(?m)^num_machines: \d+$", f"num_machines: {self.nodes}", text)
        return re.sub(r"(?m)^num_processes: \d+$", f"num_processes: {self.total}", text)

    def accelerate(self, rank: str = "0", address: str = "") -> str:
        """Return the command of one machine; of several, with shell expressions of its rank and of rank 0's address."""
        place = f" --machine_rank {rank} --main_process_ip {address} --main_process_port {PORT}" if address else ""
        return f"accelerate launch --config_file {CONFIG}{place} {self.train}"


def launch(plan: Launch, service: str) -> dict[str, Any]:
    """Return the ``files`` by name and the ``command`` that starts them.

    Raises:
        RlmError: The recipe cannot be trained so: with the sentence of a run; or the service does not have it.
    """
    recipe, registry = read(plan.recipe, plan.overrides)
    with planned(plan.total, plan.sharding):
        stages = compose(recipe, registry)
        for stage, path in zip(stages, recipe.stage_paths, strict=True):
            with located(recipe, path):
                args = config_of(stage)
                if stage.equation is not None:
                    check_sharding(stage, args)
    return verl(plan, stages, args) if service == "verl" else SERVICES[service](plan)


def _filled(name: str, plan: Launch, **values: str) -> str:
    return (files("rlm_lab") / "launch_files" / name).read_text().format(plan=plan, **values)


def torchrun(plan: Launch) -> dict[str, Any]:
    """Return torchrun's command for DDP; accelerate, which starts torchrun, for sharded weights."""
    several = plan.nodes > 1
    if plan.sharding != "none":
        command = plan.accelerate("$NODE_RANK", "$MASTER_ADDR") if several else plan.accelerate()
        return {"files": {CONFIG: plan.config()}, "command": command}
    place = f"--nnodes {plan.nodes} --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port {PORT}"
    return {
        "files": {},
        "command": f"torchrun {place if several else '--standalone'} --nproc-per-node {plan.processes} {plan.train}",
    }


def slurm(plan: Launch) -> dict[str, Any]:
    """Return a batch script: one task per machine starts its processes."""
    command = plan.accelerate('"$SLURM_NODEID"', '"$HEAD"')
    job = _filled("job.slurm", plan, command=shlex.quote(command))
    return {"files": {CONFIG: plan.config(), "job.slurm": job}, "command": "sbatch job.slurm"}


def skypilot(plan: Launch) -> dict[str, Any]:
    """Return a task that sends the working directory with the recipe to every machine."""
    command = plan.accelerate('"$SKYPILOT_NODE_RANK"', '"$HEAD"')
    task = _filled("task.yaml.txt", plan, accelerators=json.dumps(f"{plan.gpu}:{plan.processes}"), command=command)
    return {"files": {CONFIG: plan.config(), "task.yaml": task}, "command": f"sky launch -c {plan.name} task.yaml"}


def hf_jobs(plan: Launch) -> dict[str, Any]:
    """Return a script that holds the recipe and the config: a job of Hugging Face has one machine and no folder."""
    if plan.nodes > 1:
        problem = f"expected one machine, got {plan.nodes}: a job of Hugging Face has no second one"
        raise RlmError(problem, where="--nodes", hint="leave it out, or take `--with slurm` or `--with skypilot`")
    sent = Launch(Path(plan.recipe.name), plan.overrides, 1, plan.processes, plan.sharding)
    arguments = ", ".join(map(repr, shlex.split(sent.accelerate())[2:]))
    script = _filled(
        "job.py.txt", sent, recipe=plan.recipe.read_text(), config=plan.config(), file=CONFIG, arguments=arguments
    )
    command = f"hf jobs uv run --flavor {shlex.quote(plan.gpu)} --timeout 24h --secrets HF_TOKEN job.py"
    return {"files": {"job.py": script}, "command": command}


SERVICES = {"torchrun": torchrun, "slurm": slurm, "skypilot": skypilot, "hf-jobs": hf_jobs}


def options_of_parts(algorithm: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return option → value of the parts of a resolved section `algorithm`, and a line per knob that differs in verl.

    Raises:
        RlmError: verl has no such part.
    """
    options: dict[str, Any] = {}
    differs: list[str] = []
    # the policy loss first: other parts replace its loss_mode
    for slot in sorted(algorithm.keys() - {"name"}, key=lambda slot: slot != "policy_loss"):
        choice = algorithm[slot] or []
        for part in choice if isinstance(choice, list) else [choice]:
            name = part["name"].rpartition("/")[2]
            if name not in VERL.get(slot, {}):
                allowed = ", ".join(VERL.get(slot, ())) or "none here"
                raise RlmError(f"verl 0.9.1 has no option for '{name}'", where=f"algorithm.{slot}", allowed=allowed)
            _add_part(part, {"knobs": {}, "values": {}, "fixed": {}, **VERL[slot][name]}, options, differs)
    if low := options.get(f"{ACTOR}.clip_ratio_low"):
        options.setdefault(f"{ACTOR}.clip_ratio_high", low)
    return options, differs


def _add_part(part: Mapping[str, Any], entry: Mapping[str, Any], options: dict[str, Any], differs: list[str]) -> None:
    """Add the options of a part to `options`, and its knobs with other values in verl to `differs`."""
    idle, all_fixed = {"name", *entry.get("idle", ())}, dict(entry["fixed"])
    for knob, by_value in entry.get("with", {}).items():
        case = by_value.get(str(part[knob]), {})
        idle.update(case.get("idle", ()))
        all_fixed |= case.get("fixed", {})
    options |= entry.get("set", {})
    for knob, value in part.items():
        fixed = all_fixed.get(knob)
        if knob in entry["knobs"]:
            options |= {} if value is None else {entry["knobs"][knob]: value}
        elif str(value) in entry["values"].get(knob, {}):
            options |= entry["values"][knob][str(value)]
        elif knob not in idle and value != fixed and (value or fixed):
            differs.append(f"{part['name']}.{knob}: {json.dumps(value)}, in verl {json.dumps(fixed)}")


def options_of_trainer(args: Any, plan: Launch) -> tuple[dict[str, Any], list[str]]:
    """Return option → value of TRL's settings, and what differs. verl counts prompts, and steps are generation batches.

    Raises:
        RlmError: An optimizer step has no whole number of groups.
    """
    options = {option: getattr(args, name) for name, options in VERL["trainer"].items() for option in options}
    step = args.per_device_train_batch_size * plan.total * args.gradient_accumulation_steps
    prompts, rest = divmod(step, args.num_generations)
    if rest:
        problem = f"expected whole groups of {args.num_generations} in an optimizer step, got {step} completions"
        raise RlmError(problem, where="trainer.gradient_accumulation_steps")
    updates = args.steps_per_generation // args.gradient_accumulation_steps
    options |= {
        "data.train_batch_size": prompts * updates,
        f"{ACTOR}.ppo_mini_batch_size": prompts,
        f"{ACTOR}.optim.lr_warmup_steps": args.warmup_steps,
        "actor_rollout_ref.rollout.top_k": args.top_k or -1,
        "trainer.nnodes": plan.nodes,
        "trainer.n_gpus_per_node": plan.processes,
        "trainer.total_epochs": math.ceil(args.num_train_epochs),
    }
    if args.max_steps > 0:
        options["trainer.total_training_steps"] = math.ceil(args.max_steps / (updates * args.num_iterations))
    kind = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
    options[f"{ACTOR}.optim.lr_scheduler_type"] = schedule = VERL["schedules"].get(kind, "constant")
    differs = [] if kind in VERL["schedules"] else [f"trainer.lr_scheduler_type: {kind}, here {schedule}"]
    return options, [*differs, VERL["prompts"]]


def verl(plan: Launch, stages: Sequence[Stage], args: Any) -> dict[str, Any]:
    """Return a file with data sets and reward, verl's command, and what ``differs`` there."""
    (stage, *others), model = stages, stages[0].body["model"].get("path")
    if others or stage.equation is None or model is None:
        problem = "expected a recipe of one stage with a policy loss and a model by its `path`"
        raise RlmError(problem, where=str(plan.recipe), hint="verl has no stages, and loads no other model")
    options, differs = options_of_parts(stage.body["algorithm"])
    settings, further = options_of_trainer(args, plan)
    options |= {**settings, **VERL["constants"], "actor_rollout_ref.model.path": model}
    adapter = {"r": 8, "lora_alpha": 8, **stage.lora} if stage.lora else {}
    options |= {option: adapter[name] for name, option in VERL["lora"].items() if name in adapter}
    if stage.critic is not None:
        options |= {"critic.optim.lr": stage.critic.learning_rate or args.learning_rate, "critic.model.path": model}
    values = {"name": stage.body["environment"]["name"], "overrides": list(plan.overrides), "recipe": str(plan.recipe)}
    script = (files("rlm_lab") / "launch_files" / "recipe_of_verl.py.txt").read_text().format(**values)
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}
    lines = [shlex.quote(f"{key}={text}") for key, text in texts.items()]
    command = " \\\n  ".join(["python3 recipe_of_verl.py && python3 -m verl.trainer.main_ppo", *lines])
    return {"files": {"recipe_of_verl.py": script}, "differs": [*differs, *further], "command": command}


def render(data: Mapping[str, Any]) -> str:
    """Return files and command as text, each file under its name."""
    parts = [f"# file {name}\n{text.rstrip()}" for name, text in data["files"].items()]
    parts += ["\n".join(["# differs", *data["differs"]])] if data.get("differs") else []
    return "\n\n".join([*parts, f"# command\n{data['command']}"])
