"""`rlm reward probe`: what a reward pays for completions whose worth is known."""
