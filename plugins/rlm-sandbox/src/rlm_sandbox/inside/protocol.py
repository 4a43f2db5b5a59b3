"""Protocol between trainer and sandbox: length-framed JSON. Never an object, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Json = Any
Message = dict[str, Json]


class EncodingError(Exception):
    """A value of a type that is not built in, nested too deeply, or malformed."""


def pack(message: Mapping[str, Json]) -> bytes:
    """Return a message in wire format: its length in four bytes, then JSON."""
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


def unpack(data: bytes) -> Message:
    """Parse the message in `data` (without its length).

    Raises:
        EncodingError: It is malformed.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if type(message) is not dict:
        raise EncodingError("not a message")
    return message
