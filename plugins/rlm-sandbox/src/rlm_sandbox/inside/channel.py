"""A sample's end of its only socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from rlm_sandbox.inside.errors import error_message
from rlm_sandbox.inside.protocol import Json, Message, pack, unpack

Answer = Callable[[Message], Mapping[str, Json]]


class Channel:
    """Message exchange with the trainer; the process exits when the other end closes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, message: Mapping[str, Json]) -> None:
        """Send one message completely."""
        data = pack(message)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def receive(self) -> Message:
        """Return the next message."""
        return unpack(self._read(int.from_bytes(self._read(4), "big")))

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = os.read(self._descriptor, count - len(data))
            if not chunk:
                os._exit(0)
            data += chunk
        return bytes(data)


def serve(channel: Channel, load: Callable[[], Answer]) -> None:
    """Load the responder, report it, then answer until the socket closes. Every exception is reported as an error."""
    try:
        answer = load()
        channel.send({"loaded": True})
    except BaseException as error:
        channel.send(error_message(error))
        return
    while True:
        message = channel.receive()
        try:
            reply = answer(message)
        except BaseException as error:
            reply = error_message(error)
        channel.send(reply)
