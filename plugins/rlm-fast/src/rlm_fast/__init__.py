"""Training in less time with the same numbers: decoding, forward passes, kernels, and an estimate of memory.

Importing this does not load torch.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rlm_fast import generator
from rlm_fast.speed import Memory, Speed
from rlm_plugins import hookimpl
from rlm_plugins.cli.output import announce
from rlm_plugins.cli.typer_app import AsJson, Trust, print_result, terminal_width

__all__ = ["rlm_commands", "rlm_generators", "rlm_sections"]

rlm_generators = hookimpl(lambda: {"fast": generator.fast})
rlm_sections = hookimpl(lambda: {"speed": Speed, "memory": Memory})
rlm_commands = hookimpl(lambda: {"fits": fits})


def fits(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE|ALGORITHM...]", help="Default: grpo dapo ppo.")
    ] = None,
    gpu: Annotated[float, typer.Option(min=1, metavar="GIB", help="Memory of the card in GiB.")] = 24.0,
    prompt: Annotated[int, typer.Option(min=2, help="Tokens of an algorithm's prompts.")] = 256,
    group: Annotated[int, typer.Option(min=2, help="Smallest number of completions per prompt.")] = 8,
    length: Annotated[int, typer.Option(min=16, help="Smallest number of tokens of a completion.")] = 512,
    family: Annotated[str, typer.Option(help="Models to choose from: qwen3 or qwen2.5.")] = "qwen3",
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Find the largest model, completion and group that fit a GPU.

    JSON: a list of {name, LoRA, 4-bit, full, notes}; a mode is null or {family, model, group, length, peak}.
    """
    announce()
    from rlm_fast import largest_fit

    rows = largest_fit.fits(names or ["grpo", "dapo", "ppo"], gpu, prompt, group, length, family)
    print_result(rows, largest_fit.render(rows, gpu, terminal_width()), as_json)


fits.panel = "Start"  # type: ignore[attr-defined]
