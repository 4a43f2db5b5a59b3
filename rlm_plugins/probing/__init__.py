"""A look at a reward before it teaches anybody: what scores, what must not, and how it behaves."""
