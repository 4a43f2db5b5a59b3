"""The command line: ``rlm``. One file per command; plain data first, text for a terminal after that."""

from rlm_plugins.cli.typer_app import app, main

__all__ = ["app", "main"]
