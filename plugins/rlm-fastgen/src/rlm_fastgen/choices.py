"""Sizes of decoding that are chosen by measurement (`rlm_plugins/kernels/tuning.py`). Importing this loads no torch."""

from rlm_plugins.kernels.tuning import NEVER, Choice, register

_WORKLOADS = "rlm_fastgen.choice_workloads"

register(
    Choice(
        "argmax_piece",
        "rlm_fastgen.sampling:PIECE",
        (64, 256, NEVER),
        f"{_WORKLOADS}:token_argmax",
        "logits in which argmax searches at a time:",
    ),
    Choice(
        "shared_keys",
        "rlm_fastgen.prefix_attention:MIN_SAVED",
        (2**14, 2**15, 2**18, NEVER),
        f"{_WORKLOADS}:shared_prefix",
        "saved keys from which prompts are shared:",
    ),
)
