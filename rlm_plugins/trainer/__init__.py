"""The one package that knows the inside of TRL's GRPOTrainer.

TRL samples, rewards, pads, reads log-probabilities, accumulates and steps. Three narrow seams put the equation in:
what the rewards were (`_calculate_rewards`), what the batch looks like after scoring
(`_generate_and_score_completions`), what the loss is (`_compute_loss`). `tests/test_trl_interface.py` fails by name when a
release of TRL changes what is relied on here.

One file per room, each a class on the one before: problems → generating → writing → playing → reading → recalling →
moving → valuing → judging → hurrying → trying → scoring → stopping → dealing → learning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rlm_plugins.errors import RlmError
from rlm_plugins.trainer.checkpoint import DurableCheckpoints
from rlm_plugins.trainer.loss import Learning
from rlm_plugins.trainer.part_state import Memory
from rlm_plugins.trainer.step_snapshot import Boundary

PARTS_FILE = "parts.pt"
CRITIC = "critic"


class EquationTrainer(DurableCheckpoints, Learning):
    """GRPOTrainer whose advantage and loss are the parts of an :class:`rlm_plugins.step.Equation`.

    It takes everything GRPOTrainer takes, and what the classes of the rooms say they take. Parts that have a memory
    are saved and loaded with its checkpoints.
    """

    _name = "rlm"
    _tag_names = ("trl", "rlm-plugins")
    _boundary: Boundary | None = None

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        step = self.state.global_step
        if self.model.training and (self._boundary is None or self._boundary.step != step):
            # the critic moves with the step, not with what is written
            self._boundary = Boundary(step, {n: x for n, x in self._stateful().items() if n != CRITIC})
        return super()._generate_and_score_completions(inputs)

    def keep(self) -> None:
        """Saves what was learned up to the last optimiser step, as it was when that step was done."""
        if self._boundary is not None and self._boundary.step == self.state.global_step:
            self._boundary.restore(self._stateful())
        super().keep()

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's; a part whose memory no checkpoint can hold is told before the first step, not at the first save."""
        if self.args.save_strategy != "no":
            self._check_memories()
        self._boundary = None
        return super().train(*args, **kwargs)

    def save_critic(self, folder: Path) -> None:
        """Writes the critic, where there is one, into a folder of its own."""
        if self.critic is not None and self.args.should_save:
            self.critic.save(folder)
        self.accelerator.wait_for_everyone()

    def _stateful(self) -> dict[str, Any]:
        parts = self._who_learns()
        found = {f"{i}:{p.part.full_name}": Memory(p) for i, p in enumerate(parts) if hasattr(p.target, "state_dict")}
        own = {"desk": self._desk, "past": self._past, CRITIC: self._tutor}
        return found | {name: memory for name, memory in own.items() if memory is not None}

    def _check_memories(self) -> None:
        for memory in self._stateful().values():
            if isinstance(memory, Memory):
                memory.check()

    def _write_extras(self, folder: Path) -> None:
        self._check_memories()
        if parts := self._stateful():
            torch.save({name: part.state_dict() for name, part in parts.items()}, folder / PARTS_FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        parts = self._stateful()
        if checkpoint and parts:
            memory = torch.load(Path(checkpoint) / PARTS_FILE, weights_only=True)
            if CRITIC in parts and CRITIC not in memory:
                raise RlmError("the checkpoint has no critic: neither its value head nor its trunk", where=checkpoint)
            for name, part in parts.items():
                part.load_state_dict(memory[name])
