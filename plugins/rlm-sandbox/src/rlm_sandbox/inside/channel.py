"""A sample's end of its only way out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from rlm_sandbox.inside.wire import Json, Message, pack, unpack

Answer = Callable[[Message], Mapping[str, Json]]


class Channel:
    """Messages to and from whoever is asking; ends the process where there is nobody left."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, message: Mapping[str, Json]) -> None:
        """One message, whole."""
        data = pack(message)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def receive(self) -> Message:
        """The next message."""
        return unpack(self._read(int.from_bytes(self._read(4), "big")))

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = os.read(self._descriptor, count - len(data))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)


def told(error: BaseException) -> Message:
    """What went wrong, for whoever reads samples: a name, and the beginning of what it says."""
    try:
        text = str(error)[:300]
    except BaseException:
        text = ""
    return {"error": [type(error).__name__[:80], text]}


def serve(channel: Channel, load: Callable[[], Answer]) -> None:
    """Loads what answers, says so, then answers until nobody asks. Whatever is raised on the way is told."""
    try:
        answer = load()
        channel.send({"loaded": True})
    except BaseException as error:
        channel.send(told(error))
        return
    while True:
        message = channel.receive()
        try:
            reply = answer(message)
        except BaseException as error:
            reply = told(error)
        channel.send(reply)
