"""Digests of the inputs of a run: base weights, tokenizer, examples, files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlm_plugins.lazy import torch

STREAM = "a stream, which is not read twice"


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest_of_path(path: Path) -> str:
    """Return a digest of a file, or of the names and contents of all files of a folder."""
    if path.is_file():
        return digest_of_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing releases the interpreter's lock
        lines = [
            f"{file.relative_to(path)} {digest}"
            for file, digest in zip(files, pool.map(digest_of_file, files), strict=True)
        ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_of_tokenizer(processing_class: Any) -> str:
    """Return a digest of what turns text, or an image, into tokens: vocabulary, rules, chat template, settings."""
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    fast = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(fast.to_str()) if fast is not None else {"vocab": tokenizer.get_vocab()}
    rules = {name: value for name, value in rules.items() if name not in ("padding", "truncation")}  # set by each call
    images = getattr(processing_class, "image_processor", None)
    description = {
        "rules": rules,
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "templates": [getattr(holder, "chat_template", None) for holder in (tokenizer, processing_class)],
        "images": images.to_dict() if images is not None else None,
    }
    return hashlib.sha256(json.dumps(description, sort_keys=True, default=str).encode()).hexdigest()


def digest_of_rows(rows: Any) -> str:
    """Return a digest of examples in their order; equal for a data set and a list of the same rows.

    >>> digest_of_rows([{"prompt": "a", "answer": 1}]) == digest_of_rows([{"answer": 1, "prompt": "a"}])
    True
    >>> digest_of_rows([{"prompt": "a"}, {"prompt": "b"}]) == digest_of_rows([{"prompt": "b"}, {"prompt": "a"}])
    False
    """
    if not hasattr(rows, "__len__"):
        return STREAM
    digest = hashlib.sha256()
    for row in _plain_rows(rows):
        digest.update(json.dumps(row, sort_keys=True, default=_digest_of_other).encode() + b"\n")
    return digest.hexdigest()


def digest_of_weights(model: Any) -> str:
    """Return a digest of all parameters and buffers of a model, by name, shape, type and value."""
    tensors = sorted(model.state_dict().items())
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing releases the interpreter's lock
        digests = pool.map(lambda item: _digest_of_tensor(*item), tensors)
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest_of_tensor(name: str, tensor: Any) -> str:
    head = f"{name} {tuple(tensor.shape)} {tensor.dtype}"
    if tensor.is_meta or not tensor.numel():
        return head
    data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    return f"{head} {hashlib.sha256(data).hexdigest()}"


def _plain_rows(rows: Any) -> Iterator[Mapping[str, Any]]:
    if not hasattr(rows, "with_format"):
        yield from rows
        return
    for batch in rows.with_format("arrow").iter(batch_size=1000):  # stored values: images are not decoded
        yield from batch.to_pylist()


def _digest_of_other(value: Any) -> str:
    """Return a text for a value that JSON lacks: a digest of bytes, else the type (a repr may have an address)."""
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else type(value).__qualname__
