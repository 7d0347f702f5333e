"""accelerate shards on accelerators only; for tests, let it take its FSDP2 path on gloo processes too."""

from __future__ import annotations

from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType


def allow_fsdp_on_cpu() -> None:
    """Make accelerate treat several CPU processes with an FSDP plugin as it treats several GPUs."""
    original = AcceleratorState.__init__

    def initialise(self: AcceleratorState, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.distributed_type = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    AcceleratorState.__init__ = initialise  # type: ignore[method-assign]
