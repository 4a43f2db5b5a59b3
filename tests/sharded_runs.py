"""Train several recipes under FSDP2 on CPUs: `sharded_runs.py JOBS.json`.

Accelerate shards on accelerators alone; on CPUs it would run DDP. The type of distribution is set here instead, before
any trainer is built; what shards is torch's FSDP2 over gloo.
"""

from __future__ import annotations

import os
from typing import Any

from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType


def shard_on_cpus() -> None:
    """Set the type of distribution that accelerate reserves for accelerators."""
    initialize = AcceleratorState.__init__

    def sharded(self: AcceleratorState, *args: Any, **options: Any) -> None:
        initialize(self, *args, **options)
        if options.get("fsdp_plugin") is not None:
            self.fsdp_plugin = options["fsdp_plugin"]
        if getattr(self, "fsdp_plugin", None) is not None:
            self.distributed_type = DistributedType.FSDP

    AcceleratorState.__init__ = sharded


if __name__ == "__main__":
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        shard_on_cpus()
    from train_several import main

    main()
