"""Checks of a composed recipe against its data, environment, parts and trainer settings."""
