"""Our end of a sample's only way out: messages with a deadline and a largest size, and nothing believed."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from rlm_sandbox.inside.wire import Json, Message, Unsendable, pack, unpack
from rlm_sandbox.interface import SandboxError, Status

OVERHEAD = 4096
"""Bytes of a message beside the value in it."""
STARTING = 30.0
"""Seconds a sample may take to lock itself, on a machine that does everything else at the same time."""


class Odd(Exception):
    """A sample that did not answer as one that is well does: it, and the zygote it came from, are not used again."""

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status: Status = status


class Conversation:
    """What is said with one process beyond the wall.

    Args:
        line: Our end.
        largest: Bytes of the largest message that is heard.
    """

    def __init__(self, line: socket.socket, largest: int) -> None:
        self._line, self._largest = line, 2 * largest + OVERHEAD  # JSON writes a line's end in two characters

    def start(self, job: Mapping[str, Json]) -> None:
        """Hands over a role; returns when the process has locked itself.

        Raises:
            SandboxError: The kernel refused a lock.
        """
        reply = self.ask(job, time.monotonic() + STARTING)
        if "refused" in reply:
            raise SandboxError(f"a lock is missing: {reply['refused']}")
        if "ready" not in reply:
            raise Odd("garbled", "not ready")

    def ask(self, message: Mapping[str, Json], deadline: float) -> Message:
        """Says something, hears the answer."""
        self.say(message, deadline)
        return self.hear(deadline)

    def say(self, message: Mapping[str, Json], deadline: float) -> None:
        """Sends one message."""
        try:
            self._line.settimeout(_left(deadline))
            self._line.sendall(pack(message))
        except TimeoutError:
            raise Odd("late", "it does not listen") from None
        except OSError:
            raise Odd("died", "its process has ended") from None

    def hear(self, deadline: float) -> Message:
        """The next message.

        Raises:
            Odd: None came in time; it is too long, or none at all.
        """
        length = int.from_bytes(self._read(4, deadline), "big")
        if length > self._largest:
            raise Odd("garbled", "more output than it may have")
        try:
            return unpack(self._read(length, deadline))
        except Unsendable as error:
            raise Odd("garbled", str(error)) from None

    def _read(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                self._line.settimeout(_left(deadline))
                piece = self._line.recv(min(count - len(data), 1 << 16))
            except TimeoutError:
                raise Odd("late", "no answer in time") from None
            except OSError:
                raise Odd("died", "its process has ended") from None
            if not piece:
                raise Odd("died", "its process has ended")
            data += piece
        return bytes(data)

    def close(self) -> None:
        """Hangs up; a process that is still there ends when it next listens, or is killed with its zygote."""
        self._line.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
