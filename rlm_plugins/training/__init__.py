"""A run from its first stage to its summary. Read `train`, then `engine`, `watch` and `run`."""
