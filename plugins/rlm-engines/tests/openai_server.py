"""Server with the part of vLLM's OpenAI routes that an engine needs: the log-probs of a local copy of the model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM


class Server(ThreadingHTTPServer):
    """Samples by the softmax of the copy in `folder`.

    Args:
        faults: `ignores` the adapter; reports `raw` log-probs; has no route for adapters (`fixed`); refuses them
            (`without_lora`); lists `several` bases.
        ends_after: Completions before it closes every connection.
    """

    def __init__(self, folder: Path, *faults: str, ends_after: int = 10**9) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.base = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.faults, self.ends_after, self.lock = faults, ends_after, threading.Lock()
        self.adapters: dict[str, Any] = {}
        self.loaded, self.completed = list[str](), 0

    def load(self, name: str, folder: str) -> tuple[int, str]:
        """Load an adapter."""
        if "without_lora" in self.faults:
            return 500, "LoRA is not enabled. Use --enable-lora to enable LoRA."
        if not Path(folder).is_dir():
            return 404, f"Loading lora {name} failed: No adapter found for {folder}"
        from peft import PeftModel

        base = AutoModelForCausalLM.from_pretrained(self.base.config._name_or_path)
        self.adapters[name] = PeftModel.from_pretrained(base, folder).eval()
        self.loaded.append(name)
        return 200, "Success"

    @torch.no_grad()
    def complete(self, body: Any) -> dict[str, Any]:
        """Return a choice."""
        model = self.base if "ignores" in self.faults else self.adapters.get(body["model"], self.base)
        ids, random = list(body["prompt"]), torch.Generator().manual_seed(body.get("seed") or 0)
        logp = model(torch.tensor([ids])).logits[0].log_softmax(1)
        prompt = [None, *({str(t): {"logprob": float(x[t])}} for x, t in zip(logp, ids[1:], strict=False))]
        tokens, values = list[int](), list[float]()
        while len(tokens) < body["max_tokens"] and (not tokens or tokens[-1] not in body.get("stop_token_ids", ())):
            raw = model(torch.tensor([ids + tokens])).logits[0, -1]
            scaled = raw / (body["temperature"] or 1e-6)
            if (k := body.get("top_k", 0)) > 0:
                scaled = scaled.masked_fill(scaled < scaled.topk(k).values[-1], -torch.inf)
            tokens.append(int(torch.multinomial(scaled.softmax(0), 1, generator=random)))
            values.append(float((raw if "raw" in self.faults else scaled).log_softmax(0)[tokens[-1]]))
        choice = {"token_ids": tokens, "logprobs": {"token_logprobs": values}}
        return {"choices": [choice | ({"prompt_logprobs": prompt} if "prompt_logprobs" in body else {})]}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self._send(404, {"detail": "Not Found"})
            return
        names = ["base", "other"] if "several" in self.server.faults else ["base"]
        adapters = [{"id": name, "parent": "base"} for name in self.server.adapters]
        self._send(200, {"data": [*({"id": name} for name in names), *adapters]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self._answer(self.path.removeprefix("/v1/"), body)

    def _answer(self, path: str, body: Any) -> None:
        if path == "completions":
            self.server.completed += 1
            if self.server.completed <= self.server.ends_after:
                self._send(200, self.server.complete(body))
        elif "fixed" in self.server.faults:
            self._send(404, {"detail": "Not Found"})
        elif path == "load_lora_adapter":
            status, message = self.server.load(body["lora_name"], body["lora_path"])
            self._send(status, {"error": {"message": message}})
        else:
            known = self.server.adapters.pop(body["lora_name"], None)
            self._send(200 if known else 404, {"error": {"message": "no such adapter"}})

    def _send(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def serving(folder: Path, *faults: str, **options: Any) -> Iterator[Any]:
    """Run a server inside a ``with`` block; yield it with its address."""
    server = Server(folder, *faults, **options)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield SimpleNamespace(server=server, url=f"http://127.0.0.1:{server.server_address[1]}/v1")
    finally:
        server.shutdown()
        server.server_close()
