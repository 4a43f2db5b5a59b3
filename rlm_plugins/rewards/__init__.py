"""Rewards as TRL calls them: validation, timeouts, worker processes, failures and prefetching."""
