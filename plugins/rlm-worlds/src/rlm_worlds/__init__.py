"""Environments: text games, tools, corpora of the survey. Importing this loads neither torch nor datasets."""

from rlm_plugins import hookimpl
from rlm_worlds.corpora import CORPUS_ENVIRONMENTS
from rlm_worlds.gist import gist, gist_environment
from rlm_worlds.one_player_games import guess, nim, walk
from rlm_worlds.reward import token_f1
from rlm_worlds.tools import calculator, interpreter

__all__ = ["calculator", "guess", "interpreter", "nim", "token_f1", "walk"]


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    games = {"guess": guess, "nim": nim, "walk": walk}
    tools = {"calculator": calculator, "interpreter": interpreter}
    return {**games, **tools, "gist": gist_environment, **CORPUS_ENVIRONMENTS}


rlm_rewards = hookimpl(lambda: {"token_f1": token_f1, "gist": gist})
