"""Server with the routes of vLLM that an engine needs, which has the true log-probs of a local copy of the model."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

MISSING = 404, {"detail": "Not Found"}


class Server(ThreadingHTTPServer):
    """Samples by the softmax of a model, with `faults`; closes connections after `ends_after` requests."""

    def __init__(self, folder: Path, *faults: str, ends_after: int = 10**9) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.folder, self.faults, self.rest, self.lock = folder, faults, ends_after, threading.Lock()
        self.base, self.adapters, self.loaded = AutoModelForCausalLM.from_pretrained(folder), dict[str, Any](), []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_close(self) -> None:
        self.shutdown()
        super().server_close()

    def load_lora_adapter(self, lora_name: str, lora_path: str) -> tuple[int, Any]:
        if "without_lora" in self.faults:
            return 500, {"error": {"message": "LoRA is not enabled. Use --enable-lora to enable LoRA."}}
        if not Path(lora_path).is_dir():
            return 404, {"error": {"message": f"Loading lora {lora_name} failed: No adapter found for {lora_path}"}}
        self.adapters[lora_name] = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(self.folder), lora_path
        )
        self.loaded.append(lora_name)
        return 200, {}

    def unload_lora_adapter(self, lora_name: str) -> tuple[int, Any]:
        return (200, {}) if self.adapters.pop(lora_name, None) else (404, {"error": {"message": "not found"}})

    @torch.no_grad()
    def completions(self, **body: Any) -> tuple[int, Any]:
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
        choice = {"token_ids": tokens, "logprobs": {"token_logprobs": values}, "prompt_logprobs": prompt}
        return 200, {"choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        names = ["base", "other"] if "several" in self.server.faults else ["base"]
        data = [*({"id": name} for name in names), *({"id": x, "parent": "base"} for x in self.server.adapters)]
        self._send(*((200, {"data": data}) if self.path == "/v1/models" else MISSING))

    def do_POST(self) -> None:
        route = self.path.removeprefix("/v1/")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.rest -= route == "completions"
            if self.server.rest >= 0:
                fixed = "fixed" in self.server.faults and route != "completions"
                self._send(*(MISSING if fixed else getattr(self.server, route)(**body)))

    def _send(self, status: int, answer: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *args: Any) -> None:
        pass
