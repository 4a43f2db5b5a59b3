"""The trainer's end of a sample's socket: messages with a deadline and a size limit, validated on receipt."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from rlm_sandbox.inside.protocol import EncodingError, Json, Message, pack, unpack
from rlm_sandbox.interface import SandboxError, Status

OVERHEAD = 4096
"""Bytes of a message in addition to its value."""
STARTING = 30.0
"""Seconds that a sample may take to lock itself, on a busy machine."""


class SampleFailure(Exception):
    """An invalid or missing reply of a sample; neither it nor its zygote is used again."""

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status: Status = status


class Connection:
    """Message exchange with one process in the sandbox.

    Args:
        line: The trainer's end of the socket.
        largest: Size limit of a received value, in bytes.
    """

    def __init__(self, sock: socket.socket, max_output: int) -> None:
        self._socket, self._max_bytes = sock, 2 * max_output + OVERHEAD  # JSON escapes a line break as two characters

    def start(self, job: Mapping[str, Json]) -> None:
        """Send a role; return when the process has locked itself.

        Raises:
            SandboxError: The kernel rejected a lock.
        """
        reply = self.request(job, time.monotonic() + STARTING)
        if "refused" in reply:
            raise SandboxError(f"a lock is missing: {reply['refused']}")
        if "ready" not in reply:
            raise SampleFailure("garbled", "not ready")

    def request(self, message: Mapping[str, Json], deadline: float) -> Message:
        """Send a message and return the reply."""
        self.send(message, deadline)
        return self.receive(deadline)

    def send(self, message: Mapping[str, Json], deadline: float) -> None:
        """Send one message."""
        try:
            self._socket.settimeout(_remaining(deadline))
            self._socket.sendall(pack(message))
        except TimeoutError:
            raise SampleFailure("late", "its socket is full") from None
        except OSError:
            raise SampleFailure("died", "its process has ended") from None

    def receive(self, deadline: float) -> Message:
        """Return the next message."""
        length = int.from_bytes(self._read(4, deadline), "big")
        if length > self._max_bytes:
            raise SampleFailure("garbled", "more output than allowed")
        try:
            return unpack(self._read(length, deadline))
        except EncodingError as error:
            raise SampleFailure("garbled", str(error)) from None

    def _read(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                self._socket.settimeout(_remaining(deadline))
                chunk = self._socket.recv(min(count - len(data), 1 << 16))
            except TimeoutError:
                raise SampleFailure("late", "no answer in time") from None
            except OSError:
                raise SampleFailure("died", "its process has ended") from None
            if not chunk:
                raise SampleFailure("died", "its process has ended")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        """Close the socket. The process ends when it next reads, or is killed with its zygote."""
        self._socket.close()


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining
