"""Prompts of each generation batch, the sources of its completions, and multi-turn episodes."""
