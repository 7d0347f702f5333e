"""The role scheme of the model that a tokenizer goes with, noted in the tokenizer: encoding for another is refused."""

from __future__ import annotations

from typing import Any

from rolewise.roles import DEFAULT_SCHEME, RoleScheme, require_scheme

_NOTED = "rolewise_scheme"
"""Under which key of the tokenizer's configuration the scheme is kept."""


def note_scheme(tokenizer: Any, scheme: RoleScheme) -> None:
    """Note in a tokenizer the scheme of the model that it goes with, for `encode` (and for `save_pretrained`).

    Raises:
        ValueError: when another scheme is noted: two models share the tokenizer, and one would be read wrongly.
    """
    noted = _noted(tokenizer)
    if noted is not None and noted != scheme:
        raise ValueError(
            f"this tokenizer goes with a model of another role scheme already ({noted}, not {scheme}); load a "
            f"tokenizer of its own for each model, one whose tokenizer_config.json has no other {_NOTED}"
        )
    tokenizer.init_kwargs[_NOTED] = scheme.to_dict()


def scheme_of(tokenizer: Any, wanted: RoleScheme | None = None) -> RoleScheme:
    """The scheme to encode with: the one noted in the tokenizer, else the default one.

    Args:
        tokenizer: the tokenizer.
        wanted: what the caller asks for, if anything.

    Raises:
        TypeError: when `wanted` is no scheme.
        ValueError: when `wanted` is not the one noted, or what is noted is no scheme.
    """
    noted = _noted(tokenizer)
    if wanted is None:
        return DEFAULT_SCHEME if noted is None else noted
    if noted is not None and require_scheme(wanted) != noted:
        raise ValueError(
            f"scheme={wanted} is not the {noted} of the model that this tokenizer was loaded for, so the segments "
            "would mean other roles; leave scheme out, or pass model.role_scheme"
        )
    return require_scheme(wanted)


def _noted(tokenizer: Any) -> RoleScheme | None:
    noted = tokenizer.init_kwargs.get(_NOTED)
    try:
        return None if noted is None else RoleScheme.from_dict(noted)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the tokenizer's {_NOTED} is damaged ({error}); take that line out of its tokenizer_config.json, and "
            "load it with its model (rolewise.load), which knows"
        ) from error
