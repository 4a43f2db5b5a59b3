"""Functions whose addresses recipes use."""


def as_long(texts: list[str], wanted: int = 2) -> list[float]:
    """Return 1 for each step of `wanted` characters, else 0."""
    return [float(len(text) == wanted) for text in texts]
