"""Code that runs in the sandbox: the zygote, its locks, and the roles. It imports nothing else of this package."""
