"""Worker process of a reward: reads the columns of one group per line and prints its scores. Run by path.

It ends when its input ends, so it never outlives its trainer.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    """Load the reward, print ``ready``, and score a group per line."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a reward prints must not mix with the replies
    job = json.loads(sys.argv[1])
    try:
        from rlm_plugins.registry import Registry

        registry = Registry([Path(file) for file in job["load"]])
        part = registry.find("rlm_rewards", job["name"]).bind(job["knobs"])
    except Exception as error:
        print(f"failed {type(error).__name__}: {error}".replace("\n", " "), file=out, flush=True)
        return
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        columns, _ = json.loads(line)
        print(json.dumps(scores_as_json(part, columns)), file=out, flush=True)


def scores_as_json(part: Any, columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the scores as plain data; anything but a number goes as text, and is rejected by the receiver."""
    from rlm_plugins.rewards.per_completion import call_part

    try:
        returned = call_part(part, columns)
    except (Exception, SystemExit) as error:
        frames = traceback.format_tb(error.__traceback__)[-1:]
        return {"raised": f"{type(error).__name__}: {error}", "trace": "".join(frames)}
    scores = returned.tolist() if hasattr(returned, "tolist") else returned
    is_list = isinstance(scores, list | tuple)
    brief = f"{type(returned).__name__}: {repr(returned)[:80]}"
    return {"kind": "list" if is_list else "", "scores": [_plain(x) for x in scores] if is_list else [], "brief": brief}


def _plain(score: Any) -> Any:
    from rlm_plugins.rewards.fault import Fault

    if isinstance(score, Fault):
        return {"fault": score.problem}
    score = score.item() if hasattr(score, "item") and getattr(score, "size", 1) == 1 else score
    if isinstance(score, int) and abs(score) > 1 << 1023:
        return float("inf")
    return score if score is None or isinstance(score, int | float) else repr(score)


if __name__ == "__main__":
    main()
