"""What attacks are after: planted files, servers and secrets, and a look at whether anything reached them."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

TOKEN = "token-2f9c41d7"


class Target:
    """Things an attack could reach, in a folder that everybody may write to."""

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
        places: list[Any] = [("127.0.0.1", 0), ("127.0.0.1", 0), str(root / "socket")]
        for server, place in zip(self._servers, places, strict=True):
            server.bind(place)
            server.setblocking(False)
        (root / "socket").chmod(0o777)
        self._servers[0].listen()
        self._servers[2].listen()
        self.words = {
            "SECRET_FILE": str(self.secret), "HOME": str(home), "MODULE": str(self.module), "DROP": str(self.drop),
            "TCP": str(self._servers[0].getsockname()[1]), "UDP": str(self._servers[1].getsockname()[1]),
            "UNIX": str(root / "socket"), "TRAINER": str(os.getpid()), "HALF_TOKEN": TOKEN[:7], "TOKEN_HALF": TOKEN[7:],
        }  # fmt: skip
        self._before = self._look()

    def _look(self) -> object:
        secret = self.secret.stat()
        return secret.st_mode, secret.st_mtime_ns, self.module.read_text(), sorted(os.listdir(self.drop))

    def aimed(self, program: str) -> str:
        """A program with the places of this target in it."""
        for word, value in self.words.items():
            program = program.replace(word, value)
        return program

    def touched(self) -> str:
        """What has been reached since it was planted; empty: nothing."""
        try:
            if self._look() != self._before:
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
        """Takes everything away."""
        for server in self._servers:
            server.close()
        os.environ.pop("API_TOKEN", None)
        self._folder.cleanup()
