"""The command line ``rlm``: one module per command for plain data, and one for its text."""

from rlm_plugins.cli.typer_app import app, main

__all__ = ["app", "main"]
