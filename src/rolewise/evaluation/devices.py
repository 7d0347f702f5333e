"""Where models of ours run."""

from __future__ import annotations


def require_device(name: str | None) -> None:
    """Refuse a device on which nothing can be computed here.

    Raises:
        ValueError: when there is no such kind of device, or none here; the message says what there is.
    """
    if name is None:
        return
    import torch

    try:
        found = torch.zeros((), device=name)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:  # torch has one for each kind
        raise ValueError(
            f"device={name} cannot be used here ({_first_line(error)}); leave it out to use {_default()}"
        ) from None
    if found.is_meta:
        raise ValueError(f"device={name} holds no numbers; leave it out to use {_default()}")


def _default() -> str:
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return str(accelerator or "cpu")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160].rstrip(".")
