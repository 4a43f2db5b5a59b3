"""Python API: trainers with TRL's constructors, and functions that load, check, train and explain a recipe.

Everything here is thin: Python objects become parts of a registry (`objects`), arguments become a recipe, and the rest
is what the command line does. `rlm_plugins` exports the public names lazily.
"""
