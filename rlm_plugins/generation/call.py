"""Former name; removed once the trainer uses the interface."""

from typing import Any

from rlm_plugins.generation.generator_call import generate
from rlm_plugins.generation.output import Generation


def written(*args: Any, tell: bool = False, finished: Any = None, **options: Any) -> Generation:
    """Call `generate`."""
    return generate(*args, **{"return_logprobs": tell, "on_finished": finished, **options})
