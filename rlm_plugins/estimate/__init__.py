"""How much memory a stage takes, before a weight is loaded: for `rlm check`, and for who decides what a step needs."""
