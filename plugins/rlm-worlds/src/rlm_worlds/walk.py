"""A walk on a grid with a reward for every step."""

from __future__ import annotations

from functools import partial
from itertools import product

from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.specs import EnvironmentSpec
from rlm_worlds.game import Game, Show, environment_spec

STEPS = {"r": (1, 0), "l": (-1, 0), "u": (0, 1), "d": (0, -1)}


class Walk(Game):
    """Walk from one field of a grid to another. A step is rewarded if it gets closer to the goal than ever before.

    The return is the fraction of the distance covered; 1 on a shortest path, of which there are many.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def reset(self, x: int, y: int, to_x: int, to_y: int) -> None:
        """Start at (x, y) with the goal (to_x, to_y)."""
        self.x, self.y, self.goal = x, y, (to_x, to_y)
        self.initial_distance = self.left = self.nearest = self._distance(x, y)
        self.turns = self.initial_distance

    def _distance(self, x: int, y: int) -> int:
        return abs(self.goal[0] - x) + abs(self.goal[1] - y)

    def _position_after(self, move: str) -> tuple[int, int]:
        return self.x + STEPS[move][0], self.y + STEPS[move][1]

    def legal(self) -> list[str]:
        return [move for move in STEPS if all(0 <= coordinate < self.size for coordinate in self._position_after(move))]

    def best(self) -> list[str]:
        """Return the directions that reduce the distance to the goal."""
        distance = self._distance(self.x, self.y)
        return [move for move in self.legal() if self._distance(*self._position_after(move)) < distance]

    def move(self, move: str) -> tuple[str, float, bool]:
        self.x, self.y = self._position_after(move)
        nearest, self.left = min(self.nearest, self._distance(self.x, self.y)), self.left - 1
        reward, self.nearest = (self.nearest - nearest) / self.initial_distance, nearest
        return f"{self.x},{self.y}", reward, self.left == 0 or nearest == 0


def walk(
    *, size: Count = 5, test_rows: Count = 100, show: Show = "games", skill: Share = 0.25, seed: int = 0
) -> EnvironmentSpec:
    """Build a walk from one field of a `size` × `size` grid to another, with a reward for every step.

    The prompt is start and goal (``0,3>2,3``), an action is ``r``, ``l``, ``u`` or ``d``, and the observation is the
    new position. A step closer to the goal than ever before pays 1/distance. So the return is the fraction covered, and
    per-turn credit (shaper `by_turn`) matters. Pairs of fields are held out.

    >>> game = walk().environment()
    >>> game.reset(0, 3, 2, 3)
    >>> game.step("r"), game.step("u")
    (('1,3', 0.5, False), ('1,4', 0.0, True))
    """
    fields = range(size)
    pairs = [p for p in product(fields, repeat=4) if p[:2] != p[2:]]
    starts = [(f"{x},{y}>{u},{v}", {"x": x, "y": y, "to_x": u, "to_y": v}) for x, y, u, v in pairs]
    return environment_spec(partial(Walk, size), starts, show=show, skill=skill, test_rows=test_rows, seed=seed)
