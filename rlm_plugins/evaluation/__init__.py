"""Held-out scores of a model: greedy decoding, rewards, preference pairs."""
