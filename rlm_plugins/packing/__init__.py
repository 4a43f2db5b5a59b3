"""Padding-free, prefix-shared forward and backward passes, and how micro-batches are packed."""
