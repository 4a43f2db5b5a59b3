"""A single-file plugin for tests/test_compose.py: parts with impossible requirements, and invalid environments."""

from types import MappingProxyType

from rlm_plugins import hookimpl
from rlm_plugins.specs import Algorithm, EnvironmentSpec


def median(rewards, group, *, trim: float = 0.1, window: tuple[int, int] = (1, 2)):
    """Return the median baseline."""


def needs_engine(rollout_logp):
    """Require the log-probabilities of the sampler."""


def welcomes_all(rewards, values=None):
    """Return advantages with an optional critic."""


def brevity(completions, *, characters: int = 100):
    """Return a reward for short completions."""


def judge(completions, solution):
    """Return a reward that requires the column `solution`."""


def player(environments):
    """Return a reward that requires an environment."""


def old_style(completions, **kwargs):
    """Return a reward with TRL's signature."""


def environment_spec(*, kind: str = "good"):
    """Return eight examples, or invalid ones as `kind` selects."""
    good = {"prompt": "1+1=", "solution": "2"}
    chat = {"prompt": [{"role": "user", "content": "1+1="}], "solution": "2"}
    kinds = {
        "good": [good] * 8,
        "chat": [chat] * 8,
        "empty": [],
        "few": [good] * 3,
        "null prompt": [good] * 5 + [{**good, "prompt": None}] * 3,
        "no prompt": [{"promt": "1+1=", "solution": "2"}] * 8,
        "reserved": [{**good, "completions": "x"}] * 8,
        "demonstrated": [{**good, "demonstration": "2"}] * 8,
    }
    if kind == "raises":
        raise ValueError("the disk is on fire")
    if kind == "stream":
        import datasets

        return EnvironmentSpec(train=datasets.Dataset.from_list(kinds["good"]).to_iterable_dataset())
    return EnvironmentSpec(train=kinds[kind])


def write(prompts, *, column: str = "solution"):
    """Return completions and additional columns."""


class Sleeper:
    """A trainer without training and with a loss of its own."""

    refused = MappingProxyType({"bf16": "it sleeps in any precision"})

    def config_class(self):
        from trl import SFTConfig

        return SFTConfig

    def build(self, stage, run):
        """Sleep."""


@hookimpl
def rlm_advantages():
    return {"median": median, "welcomes_all": welcomes_all}


@hookimpl
def rlm_token_weights():
    return {"needs_engine": needs_engine}


@hookimpl
def rlm_rewards():
    return {"brevity": brevity, "judge": judge, "player": player, "old_style": old_style}


@hookimpl
def rlm_environments():
    return {"world": environment_spec}


@hookimpl
def rlm_rollouts():
    return {"write": write}


@hookimpl
def rlm_trainers():
    return {"sleeper": Sleeper}


@hookimpl
def rlm_algorithms():
    return {
        "sleep": Algorithm(about="Nothing.", source="here", trainer="sleeper"),
        "no_beta": Algorithm(about="A penalty without coefficient.", source="here", penalties=("kl",)),
        "bare": Algorithm(about="No aggregator.", source="here", advantage="group_relative", policy_loss="reinforce"),
    }
