"""Decoding: a drop-in replacement for the loop of `generate` with prefix sharing and early row eviction."""
