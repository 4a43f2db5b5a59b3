"""Targets of the attacks: planted files, servers and secrets, and a check if anything reached them."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

TOKEN = "token-2f9c41d7"


class Target:
    """Objects that an attack could reach, in a world-writable folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        root.chmod(0o777)
        self.drop, home = root / "drop", root / "home"
        for folder in (self.drop, home):
            folder.mkdir()
            folder.chmod(0o777)
        self.secret, self.module = home / "secret", home / "planted.py"
        self.secret.write_text(TOKEN)
        self.module.write_text("x = 0\n")
        self.module.chmod(0o666)
        os.environ["API_TOKEN"] = TOKEN
        self._servers = [socket.socket(), socket.socket(type=socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX)]
        addresses: list[Any] = [("127.0.0.1", 0), ("127.0.0.1", 0), str(root / "socket")]
        for server, address in zip(self._servers, addresses, strict=True):
            server.bind(address)
            server.setblocking(False)
        (root / "socket").chmod(0o777)
        self._servers[0].listen()
        self._servers[2].listen()
        self.placeholders = {
            "SECRET_FILE": str(self.secret), "HOME": str(home), "MODULE": str(self.module), "DROP": str(self.drop),
            "TCP": str(self._servers[0].getsockname()[1]), "UDP": str(self._servers[1].getsockname()[1]),
            "UNIX": str(root / "socket"), "TRAINER": str(os.getpid()), "HALF_TOKEN": TOKEN[:7], "TOKEN_HALF": TOKEN[7:],
        }  # fmt: skip
        self._before = self._snapshot()

    def _snapshot(self) -> object:
        secret = self.secret.stat()
        return secret.st_mode, secret.st_mtime_ns, self.module.read_text(), sorted(os.listdir(self.drop))

    def fill_placeholders(self, program: str) -> str:
        """Return a program with the addresses of this target in it."""
        for word, value in self.placeholders.items():
            program = program.replace(word, value)
        return program

    def touched(self) -> str:
        """Return what has been reached since it was planted; empty: nothing."""
        try:
            if self._snapshot() != self._before:
                return "a file"
        except OSError:
            return "a file that is gone"
        for server in self._servers:
            try:
                server.recv(9) if server.type == socket.SOCK_DGRAM else server.accept()
            except BlockingIOError:
                continue
            return "a server"
        return ""

    def close(self) -> None:
        """Remove everything."""
        for server in self._servers:
            server.close()
        os.environ.pop("API_TOKEN", None)
        self._folder.cleanup()
