"""Functions that a recipe might name."""


def as_long(said: list[str], wanted: int = 2) -> list[float]:
    """1 for a step of so many characters."""
    return [float(len(text) == wanted) for text in said]
