"""Estimates before a run: memory, micro-batch sizes and fast paths of a stage, from its model on the meta device."""
