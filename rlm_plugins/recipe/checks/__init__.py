"""Checks of a resolved recipe against data, environment, parts and trainer settings."""
