"""Corpora of the survey as environments. Importing this loads neither torch nor datasets."""

from rlm_corpora.environments import ENVIRONMENTS
from rlm_plugins import hookimpl


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return dict(ENVIRONMENTS)
