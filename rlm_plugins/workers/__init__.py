"""Warm worker processes with a hard time limit per request."""
