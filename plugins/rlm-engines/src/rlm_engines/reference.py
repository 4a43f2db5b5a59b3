"""Engine `reference`: a second copy of the policy in this process, which samples with transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_engines.adapters import TRAINER_SETTINGS
from rlm_plugins.lazy import torch
from rlm_plugins.rollout.engine_call import Engine, EngineCompletions, EnginePolicy, Weights

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class Reference(Engine):
    """A second copy of the policy in this process, which samples with transformers.

    It saves no time. It is the standard that other engines are compared with, and trains where vLLM is not installed.
    """

    trainer_settings = TRAINER_SETTINGS

    def __init__(self, *, device: str = "cpu") -> None:
        self._device = device

    def start(self, policy: EnginePolicy) -> None:
        from transformers import AutoModelForCausalLM

        self._end = list(policy.end_token_ids)
        dtype = getattr(torch, policy.dtype)
        model = AutoModelForCausalLM.from_pretrained(policy.folder, dtype=dtype, trust_remote_code=False)
        self._model = model.to(self._device).eval()
        self._version = -1
        if policy.adapter is not None:
            from peft import get_peft_model

            self._model = get_peft_model(self._model, policy.adapter).to(self._device).eval()

    def sync(self, weights: Weights, version: int) -> None:
        """Load the adapter from its folder, or copy all weights."""
        if isinstance(weights, Path):
            from peft.utils import load_peft_weights, set_peft_model_state_dict

            set_peft_model_state_dict(self._model, load_peft_weights(str(weights), device="cpu"))
        else:
            own = dict(self._model.named_parameters())
            with torch.no_grad():
                for name, x in weights:
                    own[name].copy_(x)
        self._version = version

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Mapping[str, Any]) -> EngineCompletions:
        options = {name: sampling[name] for name in _SAMPLING}
        if not sampling["temperature"]:
            options = {"do_sample": False, "repetition_penalty": sampling["repetition_penalty"]}
        ids, logp = [], []
        with torch.random.fork_rng(), torch.no_grad():
            if sampling.get("seed") is not None:
                torch.manual_seed(sampling["seed"])
            for prompt in prompts:
                row = self._model.generate(
                    input_ids=torch.tensor([prompt], device=self._device),
                    **{"do_sample": True, **options, "top_k": max(sampling["top_k"], 0)},
                    max_new_tokens=sampling["max_tokens"],
                    eos_token_id=self._end,
                    pad_token_id=self._end[0],
                    output_scores=True,
                    return_dict_in_generate=True,
                )
                ids.append(row.sequences[0, len(prompt) :].tolist())
                scores = torch.cat(row.scores).float().log_softmax(1)
                logp.append([x[token].item() for x, token in zip(scores, ids[-1], strict=True)])
        return EngineCompletions(ids, logp, [self._version] * len(ids))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        from rlm_plugins.models.adapters import sequence_logprobs

        return [x.tolist() for x in sequence_logprobs(self._model, sequences)]

    def close(self) -> None:
        """Drop the copy."""
        vars(self).pop("_model", None)
