"""``rlm launch``: the files and the command that start a recipe on several processes. Nothing is written or run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.resolve import located
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.trainer.options import arguments as config_of
from rlm_plugins.trainer.options import check_sharding
from rlm_plugins.workers.distributed import planned

CONFIG = "accelerate.yaml"
PORT = 29500


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
    return SERVICES[service](plan)


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
    """Return a task: the working directory with the recipe is sent to every machine."""
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


def render(data: Mapping[str, Any]) -> str:
    """Return files and command as text, each file under its name."""
    parts = [f"# file {name}\n{text.rstrip()}" for name, text in data["files"].items()]
    return "\n\n".join([*parts, f"# command\n{data['command']}"])
