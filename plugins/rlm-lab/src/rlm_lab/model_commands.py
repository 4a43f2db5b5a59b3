"""Commands for the model of a run: eval, sample, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from rlm_plugins.cli.output import announce, echo
from rlm_plugins.cli.typer_app import AsJson, Overrides, Recipe, Trust, print_result


def evaluate(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A run or a recipe; with --on also an adapter, a model, a hub name."),
    ],
    overrides: Overrides = None,
    on: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECIPE", exists=True, help="Recipe whose examples and rewards are used; repeatable."),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=0, help="Maximum number of held-out examples; 0: all.")] = None,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
    samples: Annotated[int, typer.Option(min=0, help="Number of completions to print.")] = 0,
    k: Annotated[int, typer.Option("-k", min=0, help="Completions sampled per example: pass@k, majority@k.")] = 0,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Score a run or a model on held-out examples.

    JSON: {set, stage, model, metric, score, low, high, rows, rewards, samples}; with -k also k, mean_at_k, pass_at_k,
    majority_at_k, sampled; with several sets also sets, a list of these.
    """
    announce()
    from rlm_lab.evaluate import evaluate as run_evaluation
    from rlm_lab.evaluate import render
    from rlm_plugins.run.judgement import as_data

    judged = run_evaluation(source, overrides or [], rows=rows, stage=stage, k=k, on=on or [])
    print_result(as_data(judged, samples), render(judged, samples), as_json)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    to: Annotated[str, typer.Option(metavar="TARGET", help="A new folder, or hub:OWNER/NAME.")],
    merge: Annotated[bool, typer.Option("--merge", help="Merge the adapter into its base.")] = False,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
    trust: Trust = False,
) -> None:
    """Write the model of a run, with a model card, for transformers and PEFT."""
    announce()
    from rlm_lab.export import export as write

    echo(f"exported: {write(run, to, merge=merge, stage=stage)}")


def launch(
    recipe: Recipe,
    overrides: Overrides = None,
    service: Annotated[
        Literal["torchrun", "slurm", "skypilot", "hf-jobs", "verl"],
        typer.Option("--with", help="What starts the processes."),
    ] = "torchrun",
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="Processes of each machine: one per GPU.")] = 1,
    sharding: Annotated[
        Literal["none", "fsdp2", "zero2", "zero3"], typer.Option(help="What is sharded over the processes.")
    ] = "none",
    gpu: Annotated[str, typer.Option(help="GPU of skypilot (H100), flavor of hf-jobs (l4x4).")] = "H100",
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Print the files and the command that train a recipe on several GPUs or machines.

    Nothing is written or run. JSON: {files: {name: text}, command}.
    """
    announce()
    from rlm_lab import launch as launches

    plan = launches.Launch(recipe, overrides or (), nodes, processes, sharding, gpu)
    data = launches.launch(plan, service)
    print_result(data, launches.render(data), as_json)


def sample(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A run, a recipe, an adapter, a model or a hub name.")
    ],
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="Text (default: a chat loop).")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of completions.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature; 0: greedy.")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(min=0, help="Longest completion; 0: as in training.")] = 0,
    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", exists=True, help="An image for the first message; repeatable.")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
    trust: Trust = False,
) -> None:
    """Sample completions of a prompt, or chat.

    Without PROMPT it chats until the input ends.
    """
    announce()
    from rlm_lab.evaluate import Sampler, chat

    sampler = Sampler(source, stage, image or [])
    if prompt is None:
        prefix = "> " if sys.stdin.isatty() else ""
        for answer in chat(sampler, lambda: input(prefix), temperature=temperature, max_new_tokens=max_new_tokens):
            echo(answer)
    else:
        echo("\n".join(sampler.complete(prompt, count, temperature, max_new_tokens)))
