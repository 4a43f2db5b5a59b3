"""Several algorithms trained side by side, each with an adapter of its own on one frozen base, in one process."""
