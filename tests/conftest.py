"""Shapes in the signatures of the built-in parts are checked while tests run, and only then."""

from jaxtyping import install_import_hook

install_import_hook("rlm_plugins.builtin", "beartype.beartype")
