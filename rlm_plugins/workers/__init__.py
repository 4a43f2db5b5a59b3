"""Warm worker processes with a hard timeout per request."""
