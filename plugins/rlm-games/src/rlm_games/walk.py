"""A walk on a grid, every step of which is paid."""

from __future__ import annotations

from functools import partial
from itertools import product

from rlm_games.game import Count, Game, Share, Show, environment_spec
from rlm_plugins.specs import EnvironmentSpec

STEPS = {"r": (1, 0), "l": (-1, 0), "u": (0, 1), "d": (0, -1)}


class Walk(Game):
    """From one field of a grid to another, in as many steps as it takes. A step pays where it comes nearer than ever.

    The return is the share of the way that was covered; 1 on a shortest path, of which there are many.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def reset(self, x: int, y: int, to_x: int, to_y: int) -> None:
        self.x, self.y, self.goal = x, y, (to_x, to_y)
        self.whole = self.left = self.nearest = self._far(x, y)
        self.turns = self.whole

    def _far(self, x: int, y: int) -> int:
        return abs(self.goal[0] - x) + abs(self.goal[1] - y)

    def _after(self, move: str) -> tuple[int, int]:
        return self.x + STEPS[move][0], self.y + STEPS[move][1]

    def legal(self) -> list[str]:
        return [move for move in STEPS if all(0 <= place < self.size for place in self._after(move))]

    def best(self) -> list[str]:
        here = self._far(self.x, self.y)
        return [move for move in self.legal() if self._far(*self._after(move)) < here]

    def move(self, move: str) -> tuple[str, float, bool]:
        self.x, self.y = self._after(move)
        nearest, self.left = min(self.nearest, self._far(self.x, self.y)), self.left - 1
        paid, self.nearest = (self.nearest - nearest) / self.whole, nearest
        return f"{self.x},{self.y}", paid, self.left == 0 or nearest == 0


def walk(
    *, size: Count = 5, test_rows: Count = 100, show: Show = "games", skill: Share = 0.25, seed: int = 0
) -> EnvironmentSpec:
    """From one field of a `size` × `size` grid to another in as few steps as there are; every step is paid.

    The model reads where it is and where it shall go (``0,3>2,3``), writes ``r``, ``l``, ``u`` or ``d``, and reads
    where it stands then. A step that comes nearer than ever pays 1/distance: so the return is the share of the way,
    and the shaper `by_turn` has something to say. Pairs of fields are held out.

    >>> game = walk().environment()
    >>> game.reset(0, 3, 2, 3)
    >>> game.step("r"), game.step("u")
    (('1,3', 0.5, False), ('1,4', 0.0, True))
    """
    fields = range(size)
    pairs = [p for p in product(fields, repeat=4) if p[:2] != p[2:]]
    starts = [(f"{x},{y}>{u},{v}", {"x": x, "y": y, "to_x": u, "to_y": v}) for x, y, u, v in pairs]
    return environment_spec(partial(Walk, size), starts, show=show, skill=skill, test_rows=test_rows, seed=seed)
