"""Tensors through a connection between processes: no files, no shared memory, so nothing is left behind by a kill."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch


def send_tensors(connection: Connection, tensors: Mapping[str, torch.Tensor]) -> None:
    """Send named tensors, one after the other.

    Args:
        connection: To the receiver, which calls `receive_tensors`.
        tensors: On any device.
    """
    connection.send([(name, x.dtype, tuple(x.shape)) for name, x in tensors.items()])
    for x in tensors.values():
        if x.numel():
            connection.send_bytes(_bytes_of(x.detach().cpu().contiguous()))


def receive_tensors(connection: Connection) -> dict[str, torch.Tensor]:
    """Return the tensors that `send_tensors` sent, on the CPU."""
    tensors = {}
    for name, dtype, shape in connection.recv():
        tensors[name] = torch.empty(shape, dtype=dtype)
        if tensors[name].numel():
            connection.recv_bytes_into(_bytes_of(tensors[name]))
    return tensors


def _bytes_of(x: torch.Tensor) -> Any:
    """Return the memory of a contiguous tensor on the CPU as an array of bytes."""
    return x.reshape(-1).view(torch.uint8).numpy()
