"""A page of a run, and its essentials in the terminal."""
