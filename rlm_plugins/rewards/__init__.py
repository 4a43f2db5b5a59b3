"""From a reward part to scores TRL can use: validation, timeouts, processes, failures, prefetching."""
