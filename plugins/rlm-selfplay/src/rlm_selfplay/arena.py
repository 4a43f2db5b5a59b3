"""Games of TextArena (arXiv 2504.11442) for two and more players."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_worlds.textarena_games import GameRng, check_game

from rlm_plugins.errors import RecipeError
from rlm_selfplay.two_player import Start, TwoPlayerGame


class Arena(TwoPlayerGame):
    """One game of TextArena, seeded; an observation has the new messages of the game and of the other players.

    The payoffs are its rewards. An invalid move may be repeated once, by the rules of TextArena.
    """

    def start(self, name: str, seed: int, players: int, moves: Sequence[str]) -> None:
        """Start a game with a seed."""
        import textarena

        self.players, self._moves = players, list(moves)
        self._rng = GameRng(seed)
        with self._rng.active():
            self._game = textarena.make(f"{name}-raw")  # unwrapped: new messages only, not the full history
            self._game.reset(num_players=players, seed=seed)
            self.mover = self._game.state.current_player_id

    def view(self) -> str:
        """Return the messages since the player's last turn, without the player's own."""
        with self._rng.active():
            player, messages = self._game.get_observation()
        return "\n".join(str(message) for sender, message, *_ in messages if sender != player)

    def legal(self) -> list[str]:
        """Return the actions of random opponents; TextArena has no list of legal moves."""
        return self._moves

    def act(self, action: str) -> None:
        """Take an action: TextArena reads the move from the text."""
        with self._rng.active():
            over, _ = self._game.step(action)
            if over:
                rewards, _ = self._game.close()
                self.payoffs = tuple(float(rewards.get(player, 0)) for player in range(self.players))
            else:
                self.mover = self._game.state.current_player_id


def arena_starts(name: str, players: int = 2, seeds: int = 64, moves: Sequence[str] = ()) -> list[Start]:
    """Return one start per seed.

    Args:
        name: Of the game, such as ``TicTacToe-v0``.
        players: Number of players.
        seeds: Number of starts.
        moves: Actions of the random opponents in evaluation.

    Raises:
        RecipeError: TextArena is not installed, the game is unknown or not for this number of players.
    """
    check_game(name, package="rlm-selfplay", where=("environment.game", "environment.knobs.name"))
    if not moves:
        problem = "expected the actions of random opponents, got none"
        raise RecipeError(problem, where="environment.knobs.moves", allowed='a list such as ["[0]", "[1]"]')
    starts: list[Start] = [
        {"name": name, "seed": seed, "players": players, "moves": list(moves)} for seed in range(seeds)
    ]
    try:
        Arena().start(**starts[0])
    except Exception as error:
        problem = f"'{name}' cannot be started with {players} players: {type(error).__name__}: {error}"
        raise RecipeError(problem, where="environment.knobs") from error
    return starts
