"""The role scheme of the model that a tokenizer goes with, noted in the tokenizer: encoding for another is refused."""

from __future__ import annotations

from typing import Any

from rolewise.roles import DEFAULT_SCHEME, RoleScheme, require_scheme

_NOTED = "rolewise_scheme"
"""Under which key of the tokenizer's configuration the scheme is kept."""
_DEFAULT = DEFAULT_SCHEME.to_dict()


def note_scheme(tokenizer: Any, scheme: RoleScheme) -> None:
    """Note in a tokenizer the scheme of the model that it goes with, for `encode` (and for `save_pretrained`)."""
    tokenizer.init_kwargs[_NOTED] = scheme.to_dict()


def scheme_of(tokenizer: Any, wanted: RoleScheme | None = None) -> RoleScheme:
    """The scheme to encode with: the one noted in the tokenizer, else the default one.

    Args:
        tokenizer: the tokenizer.
        wanted: what the caller asks for, if anything.

    Raises:
        TypeError: when `wanted` is no scheme.
        ValueError: when `wanted` is not the one noted.
    """
    noted = tokenizer.init_kwargs.get(_NOTED)
    scheme = DEFAULT_SCHEME if noted in (None, _DEFAULT) else RoleScheme.from_dict(noted)
    if wanted is None:
        return scheme
    if noted is not None and require_scheme(wanted) != scheme:
        raise ValueError(
            f"scheme={wanted} is not the {scheme} of the model that this tokenizer was loaded for, so the segments "
            "would mean other roles; leave scheme out, or pass model.role_scheme"
        )
    return require_scheme(wanted)
