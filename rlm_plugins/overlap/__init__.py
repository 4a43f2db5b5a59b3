"""Generation in a process of its own, while the trainer updates: the worker, its copy of the policy, and the client."""
