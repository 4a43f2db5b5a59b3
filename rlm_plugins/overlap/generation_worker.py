"""Process that generates: ``python -m rlm_plugins.overlap.generation_worker DESCRIPTOR PARENT THREADS``.

It answers one message after the other, and ends when the trainer's process ends, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

from rlm_plugins.errors import RlmError
from rlm_plugins.overlap.policy_copy import PolicyCopy
from rlm_plugins.overlap.tensor_stream import receive_tensors

POLL = 1.0
"""Seconds between checks of whether the trainer's process is alive."""


class MessageHandler:
    """Handles the messages of the trainer: a description first, then calls of `PolicyCopy.generate`."""

    def __init__(self) -> None:
        self._copy: PolicyCopy | None = None

    def handle(self, message: bytes, tensors: dict[str, torch.Tensor]) -> Any:
        """Return the completions; None after the description; an `RlmError` for any error."""
        try:
            content = pickle.loads(message)  # of the trainer's process, which started this one
            if self._copy is None:
                self._copy = PolicyCopy(content, tensors)
                return None
            return self._copy.generate(tensors, **content)
        except RlmError as error:
            return error
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
            return RlmError(problem)


def main() -> None:
    """Handle messages until the connection is closed."""
    descriptor, parent, threads = (int(text) for text in sys.argv[1:4])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    connection, handler = Connection(descriptor), MessageHandler()
    with contextlib.suppress(EOFError, OSError):
        while True:
            message = connection.recv_bytes()
            connection.send(handler.handle(message, receive_tensors(connection)))


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, also while it decodes."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)


if __name__ == "__main__":
    main()
