"""Sizes of decoding that are chosen by measurement (`rlm_fast.tuning`). Importing this loads no torch."""

from rlm_fast.tuning import NEVER, Choice, register

_WORKLOADS = "rlm_fast.choice_workloads"

register(
    Choice(
        "argmax_piece",
        "rlm_fast.sampling:PIECE",
        (64, 256, NEVER),
        f"{_WORKLOADS}:token_argmax",
        "logits in which argmax searches at a time:",
    ),
    Choice(
        "shared_keys",
        "rlm_fast.prefix_attention:MIN_SAVED",
        (2**14, 2**15, 2**18, NEVER),
        f"{_WORKLOADS}:shared_prefix",
        "keys that sharing a prompt must save:",
    ),
)
