"""Engine `vllm`: vLLM in the process of the trainer, on its device. Adapters are loaded as adapters, never merged."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from rlm_engines.adapters import TRAINER_SETTINGS, check_adapter, check_package, max_rank
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.rollout.engine_call import Engine, EngineCompletions, EnginePolicy, Weights

INSTALL = "pip install './plugins/rlm-engines[vllm]', or on a CPU `make test-vllm`"
_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Environment of vLLM on a CPU, where the user sets none: GiB of its cache, and no binding of threads to cores."""


class Vllm(Engine):
    """vLLM in the process of the trainer, in the dtype of the policy.

    An adapter is sent as a file and loaded beside the base; without one, all weights are copied. The fields
    `vllm_gpu_memory_utilization`, `vllm_max_model_length`, `vllm_enable_sleep_mode` and `vllm_model_impl` of `trainer:`
    apply. `enforce_eager` starts faster and samples slower. `tolerance`: see `engine_check`.
    """

    trainer_settings = TRAINER_SETTINGS

    def __init__(self, *, enforce_eager: bool = False, tolerance: Annotated[float, Field(gt=0)] | None = None) -> None:
        self._eager, self.tolerance = enforce_eager, tolerance
        self._llm: Any = None

    def check(self, lora: Mapping[str, Any] | None) -> None:
        """Check that vLLM is installed and loads the adapter."""
        check_package("vllm", INSTALL)
        check_adapter(lora)

    def start(self, policy: EnginePolicy) -> None:
        """Load the base.

        Raises:
            RlmError: vLLM refuses model or settings.
        """
        import torch

        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the weights are those of this process
        for name, value in {} if torch.cuda.is_available() else _CPU.items():
            os.environ.setdefault(name, value)
        self._end, self._request, self._version = list(policy.end_token_ids), None, -1
        self._has_adapter = policy.adapter is not None
        try:
            from vllm import LLM

            self._llm = LLM(**self._options(policy))
        except Exception as error:
            problem = f"vLLM does not start: {type(error).__name__}: {error}"
            raise RlmError(problem, where="engine", hint="its lines above name the setting") from error

    def _options(self, policy: EnginePolicy) -> dict[str, Any]:
        settings = policy.settings
        if settings.vllm_tensor_parallel_size > 1:
            problem = "a colocated engine runs on one device, got a tensor-parallel size of more"
            raise RecipeError(problem, where="trainer.vllm_tensor_parallel_size", hint="`engine: vllm_server`")
        options = {
            "model": policy.folder,
            "dtype": policy.dtype,
            "skip_tokenizer_init": True,
            "gpu_memory_utilization": settings.vllm_gpu_memory_utilization,
            "max_model_len": settings.vllm_max_model_length,
            "max_num_seqs": policy.sequences,
            "enable_sleep_mode": settings.vllm_enable_sleep_mode,
            "model_impl": settings.vllm_model_impl,
            "trust_remote_code": getattr(settings, "trust_remote_code", False),
            "enforce_eager": self._eager,
            "seed": policy.rank,
            "logprobs_mode": "processed_logprobs",  # of the distribution that was sampled from
            "disable_log_stats": True,
        }
        if settings.world_size > 1:
            options["distributed_executor_backend"] = "external_launcher"
        if policy.adapter is not None:
            from vllm.config.lora import MaxLoRARanks

            rank = max_rank(policy.adapter.to_dict())
            options |= {"enable_lora": True, "max_loras": 1, "max_cpu_loras": 1}
            options["max_lora_rank"] = min(size for size in get_args(MaxLoRARanks) if size >= rank)
        return options

    def sync(self, weights: Weights, version: int) -> None:
        """Load the adapter from its folder, or all weights; what was cached of prompts is dropped."""
        if isinstance(weights, Path):
            from vllm.lora.request import LoRARequest

            self._request = LoRARequest("policy", 1, str(weights))
            # the request of a completion must not have `load_inplace`: it would load the file at every token
            self._llm.llm_engine.add_lora(LoRARequest("policy", 1, str(weights), load_inplace=True))
        else:
            worker = self._llm.llm_engine.model_executor.driver_worker
            worker.model_runner.reload_weights(weights_iterator=iter(weights))
        self._llm.reset_prefix_cache()
        self._version = version

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Mapping[str, Any]) -> EngineCompletions:
        """Sample one completion per prompt, each with a seed of its own."""
        from vllm import SamplingParams

        fields = {name: value for name, value in sampling.items() if name not in ("seed", "structured_outputs_regex")}
        if regex := sampling.get("structured_outputs_regex"):
            from vllm.sampling_params import StructuredOutputsParams

            fields["structured_outputs"] = StructuredOutputsParams(regex=regex)
        seed, ends = sampling.get("seed"), {"stop_token_ids": self._end, "detokenize": False, "logprobs": 0}
        parameters = [
            SamplingParams(**{**ends, **fields}, seed=None if seed is None else seed + number)
            for number in range(len(prompts))
        ]
        outputs = [result.outputs[0] for result in self._run(prompts, parameters)]
        ids = [list(output.token_ids) for output in outputs]
        logp = [
            [entry[token].logprob for entry, token in zip(output.logprobs, row, strict=True)]
            for output, row in zip(outputs, ids, strict=True)
        ]
        return EngineCompletions(ids, logp, [self._version] * len(ids))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        from vllm import SamplingParams

        parameters = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0.0, detokenize=False)
        results = self._run(sequences, [parameters] * len(sequences))
        return [
            [entry[token].logprob for entry, token in zip(result.prompt_logprobs[1:], sequence[1:], strict=True)]
            for result, sequence in zip(results, sequences, strict=True)
        ]

    def _run(self, prompts: Sequence[Sequence[int]], parameters: Sequence[Any]) -> list[Any]:
        requests = [{"prompt_token_ids": list(ids)} for ids in prompts]
        results: list[Any] = self._llm.generate(requests, parameters, use_tqdm=False, lora_request=self._request)
        return results

    def sleep(self) -> None:
        """Move the weights to host memory and free the cache of keys and values."""
        self._llm.sleep(level=1)

    def wake(self) -> None:
        """Move the weights back to the device."""
        self._llm.wake_up()

    def close(self) -> None:
        """End vLLM before the process group that it may use."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        llm.llm_engine.engine_core.shutdown()
        del llm
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()
