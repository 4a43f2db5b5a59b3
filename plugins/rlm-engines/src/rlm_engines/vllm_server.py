"""Engine `vllm_server`: a vLLM server over the OpenAI route, by token ids; adapters are sent as files."""

from __future__ import annotations

import http.client
import json
import math
import os
import shutil
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from rlm_engines.adapters import TRAINER_SETTINGS, check_adapter
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.rollout.engine_call import Engine, EngineCompletions, EnginePolicy, Weights

WHERE = "engine"
COMMAND = (
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve BASE --dtype float32 --enable-lora --max-lora-rank RANK "
    "--logprobs-mode processed_logprobs"
)
"""How a server is started; the type is that of the policy."""
CONNECTIONS = 64
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further attempt to load an adapter that the server does not see yet in a shared folder."""


class VllmServer(Engine):
    """A vLLM server, on this machine or another: completions by token ids, an adapter as a file per sync.

    No process group joins trainer and server, so both may have any device. The server has the base. Each sync writes
    the adapter to a folder that both read, loads it under a new name, and removes the one before.

    Args:
        url: Address of the server, up to ``/v1``.
        served: Name of the base at the server; None: the only base that it lists.
        folder: Where adapters are written; None: a temporary folder, for a server on this machine.
        server_folder: Path of the same folder on the server's machine; None: `folder`.
        key: Environment variable that holds the key of the server.
        timeout: Seconds to wait for an answer.
        tolerance: See `engine_check`.
    """

    trainer_settings = TRAINER_SETTINGS

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:8000/v1",
        served: str | None = None,
        folder: Path | None = None,
        server_folder: Path | None = None,
        key: str | None = None,
        timeout: PositiveFloat = 600.0,
        tolerance: Annotated[float, Field(gt=0)] | None = None,
    ) -> None:
        self._url, self._served, self._key, self._timeout = url.rstrip("/"), served, key, timeout
        self._folder, self._server_folder, self.tolerance = folder, server_folder, tolerance
        self._name, self._count, self._version = "", 0, -1

    def check(self, lora: Mapping[str, Any] | None) -> None:
        """Check that the server can be reached and loads adapters.

        Raises:
            RecipeError: All weights are trained, or vLLM cannot load the adapter.
            RlmError: The server does not answer, or loads no adapters.
        """
        if lora is None:
            problem = "a server gets adapters, but all weights are trained"
            raise RecipeError(problem, where="model.lora", hint="set `model.lora`, or `engine: vllm` in this process")
        check_adapter(lora)
        self._base()
        status, message = self._post("unload_lora_adapter", {"lora_name": f"none-{uuid.uuid4().hex}"})
        if status in (404, 405) and message == "Not Found":
            raise self._error("it loads no adapters while it runs", f"start it by `{COMMAND}`")

    def start(self, policy: EnginePolicy) -> None:
        """Check the server, and prepare the folder of the adapters.

        Raises:
            RlmError: The policy has no adapter, or the server reports log-probs of another distribution.
        """
        if policy.adapter is None:
            problem = "it gets adapters, but this policy is whole"
            raise self._error(problem, "`engine=vllm`, or `engine=null trainer.use_vllm=false` without an engine")
        self._end, self._base_name = list(policy.end_token_ids), self._base()
        self._threads = ThreadPoolExecutor(min(policy.sequences, CONNECTIONS))
        self._own = TemporaryDirectory(prefix="rlm-adapters-") if self._folder is None else None
        self._local = Path(self._own.name) if self._own else Path(str(self._folder)).resolve()
        self._run, self._name = uuid.uuid4().hex[:8], ""
        forced = {"prompt": [self._end[0]], "max_tokens": 1, "top_k": 1, "temperature": 1.0}
        (logp,) = self._sampled([{**forced, "logprobs": 0, "return_token_ids": True}])[0][1]
        if logp < -1e-3:  # the only token that top-k leaves has the probability 1
            problem = "its log-probs are those before temperature, top-k and top-p"
            raise self._error(problem, f"start it by `{COMMAND}`")

    def sync(self, weights: Weights, version: int) -> None:
        """Write the adapter, load it at the server under a new name, and remove the one before.

        Raises:
            RlmError: The server refuses the adapter.
        """
        assert isinstance(weights, Path)
        self._count += 1
        name, before = f"rlm-{self._run}-{self._count}", self._name
        shutil.copytree(weights, self._local / name)
        body = {"lora_name": name, "lora_path": str((self._server_folder or self._local) / name)}
        for wait in (*WAITS, None):
            status, message = self._post("load_lora_adapter", body)
            if status == 200:
                break
            if wait is None or "No adapter found" not in message:
                hint = f"is its base that of the policy, can it read `{body['lora_path']}`? start it by `{COMMAND}`"
                raise self._error(f"it refuses the adapter ({status}): {message}", hint)
            time.sleep(wait)  # a shared folder may show a new file later
        self._name, self._version = name, version
        self._remove(before)

    def _remove(self, name: str) -> None:
        """Unload an adapter and delete its files."""
        if name:
            self._post("unload_lora_adapter", {"lora_name": name})
            shutil.rmtree(self._local / name, ignore_errors=True)

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Mapping[str, Any]) -> EngineCompletions:
        """Sample one completion per prompt, each with a seed of its own."""
        fields = {name: value for name, value in sampling.items() if name not in ("seed", "structured_outputs_regex")}
        if regex := sampling.get("structured_outputs_regex"):
            fields["structured_outputs"] = {"regex": regex}
        fields = {"stop_token_ids": self._end, **fields, "logprobs": 0, "return_token_ids": True}
        seed = sampling.get("seed")
        bodies = [
            {**fields, "prompt": list(ids), "seed": None if seed is None else seed + number}
            for number, ids in enumerate(prompts)
        ]
        rows = self._sampled(bodies)
        return EngineCompletions([ids for ids, _ in rows], [logp for _, logp in rows], [self._version] * len(rows))

    def _sampled(self, bodies: Sequence[Mapping[str, Any]]) -> list[tuple[list[int], list[float]]]:
        """Return token ids and log-probs of each completion."""
        rows = []
        for choice in self._choices(bodies):
            ids, logp = choice.get("token_ids") or [], (choice.get("logprobs") or {}).get("token_logprobs") or []
            if not ids or len(ids) != len(logp) or not all(math.isfinite(x) for x in logp):
                problem = f"expected token ids with log-probs, got {len(ids)} ids and {len(logp)} log-probs"
                raise self._error(problem, "vLLM from 0.22 reports them (`return_token_ids`, `logprobs`)")
            rows.append((list(ids), [float(x) for x in logp]))
        return rows

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        fields = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        rows = []
        for ids, choice in zip(
            sequences, self._choices([{**fields, "prompt": list(x)} for x in sequences]), strict=True
        ):
            entries = (choice.get("prompt_logprobs") or [])[1:]
            if len(entries) != len(ids) - 1:
                problem = f"expected log-probs of {len(ids) - 1} prompt tokens, got {len(entries)}"
                raise self._error(problem, "vLLM reports them (`prompt_logprobs`)")
            rows.append([float(entry[str(token)]["logprob"]) for entry, token in zip(entries, ids[1:], strict=True)])
        return rows

    def _choices(self, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the answer to each request; they are sent side by side, so that the server can batch them."""
        return list(self._threads.map(self._choice, [{"model": self._name or self._base_name, **x} for x in bodies]))

    def _choice(self, body: Mapping[str, Any]) -> Any:
        return self._get("completions", body, "choices", "its log has more; is the base that of the policy?")[0]

    def close(self) -> None:
        """Remove the adapter from the server, and end the connections."""
        threads, self._name, name = vars(self).pop("_threads", None), "", self._name
        if threads is None:
            return
        threads.shutdown()
        try:
            self._remove(name)
        except RlmError:  # a server that has ended holds no adapter
            shutil.rmtree(self._local / name, ignore_errors=True)
        if self._own is not None:
            self._own.cleanup()

    # -- requests

    def _base(self) -> str:
        """Return the name of the base at the server."""
        models = self._get("models", None, "data", "is the address that of a vLLM server, up to `/v1`?")
        names = [entry["id"] for entry in models if not entry.get("parent")]
        if (self._served is None and len(names) != 1) or self._served not in (None, *names):
            asked = "one base" if self._served is None else f"the base '{self._served}'"
            raise self._error(f"expected {asked}, got {', '.join(names) or 'none'}", "set `engine: {served: …}`")
        return self._served or str(names[0])

    def _get(self, path: str, body: Mapping[str, Any] | None, field: str, hint: str) -> list[Any]:
        """Return a list in the answer to a request."""
        status, text = self._post(path, body)
        if status != 200:
            raise self._error(f"it answers {status}: {text}", hint)
        try:
            return list(json.loads(text)[field])
        except (ValueError, KeyError, TypeError):
            raise self._error(f"expected `{field}` in its answer, got {text[:200]}", hint) from None

    def _post(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, str]:
        """Return the status of an answer with its text, of an error its message."""
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {os.environ.get(self._key, '')}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, _message(error.read().decode(errors="replace"))
        except (OSError, http.client.HTTPException, ValueError) as error:  # no connection, a time limit
            problem = f"it does not answer ({type(error).__name__}: {error})"
            raise self._error(problem, f"start it by `{COMMAND}`; `rlm train --resume` continues a run") from None

    def _error(self, problem: str, hint: str) -> RlmError:
        return RlmError(f"the vLLM server at {self._url}: {problem}", where=WHERE, hint=hint)


def _message(text: str) -> str:
    """Return the message of an answer that is an error.

    >>> _message('{"error": {"message": "no such model"}}'), _message('{"detail": "Not Found"}')
    ('no such model', 'Not Found')
    """
    try:
        answer = json.loads(text)
        return str(answer.get("detail") or answer["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:300]
