"""Limits of calls in time: worker processes that are killed, and interruption in this process."""
