"""Reward probe: the scores of a reward for completions of known quality."""
