"""Packed ids: one integer that carries a token and its role.

`packed = token + vocab_size * block`. An engine that knows nothing of roles batches, hashes and caches such integers
as they are, so that two prompts equal in text and different in roles never share a prefix. OUTPUT is block 0, since
what an engine samples are plain tokens. So a plain prompt, sent by mistake, would be all OUTPUT: a prompt without any
token of another block is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rolewise.roles import RoleScheme


@dataclass(frozen=True)
class PackedIds:
    """How tokens with roles become single integers, for one model.

    Blocks follow the rows of the table from the last to the first, OUTPUT's row before all: with the default scheme
    0 is OUTPUT, 1 DATA, 2 USER, 3 SYSTEM.

    Args:
        vocab_size: rows of the model's token embeddings (`config.vocab_size`), which a tokenizer may not fill.
        scheme: which row of the segment table each role takes.

    Raises:
        ValueError: when vocab_size is not positive.
    """

    vocab_size: int
    scheme: RoleScheme

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise ValueError(f"vocab_size={self.vocab_size} must be at least 1; take the model's config.vocab_size")

    @property
    def rows(self) -> tuple[int, ...]:
        """The row of the segment table that each block stands for."""
        output = self.scheme.output
        return (output, *(row for row in reversed(range(self.scheme.num_segments)) if row != output))

    @property
    def limit(self) -> int:
        """The first integer that is no packed id."""
        return self.vocab_size * self.scheme.num_segments

    def pack(self, input_ids: Sequence[int], segment_ids: Sequence[int]) -> list[int]:
        """Tokens and their segments as packed ids, all of length [seq].

        Raises:
            ValueError: when the two differ in length, one is out of range, or all are OUTPUT.
        """
        if len(input_ids) != len(segment_ids):
            raise ValueError(f"{len(input_ids)} tokens have {len(segment_ids)} segment ids; each token needs one")
        block = {row: number for number, row in enumerate(self.rows)}
        packed: list[int] = []
        for place, (token, segment) in enumerate(zip(input_ids, segment_ids, strict=True)):
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"input_ids[{place}] is {token}, outside of 0..{self.vocab_size - 1}")
            if segment not in block:
                raise ValueError(f"segment_ids[{place}] is {segment}, outside of 0..{self.scheme.num_segments - 1}")
            packed.append(token + self.vocab_size * block[segment])
        self.check(packed)
        return packed

    def unpack(self, packed: Sequence[int]) -> tuple[list[int], list[int]]:
        """The tokens and segment ids of a packed prompt.

        Raises:
            ValueError: as `check` does.
        """
        self.check(packed)
        rows = self.rows
        return [one % self.vocab_size for one in packed], [rows[one // self.vocab_size] for one in packed]

    def check(self, packed: Sequence[int]) -> None:
        """See that a prompt carries roles.

        Raises:
            ValueError: when it is empty, an id is out of range, or all are OUTPUT, as plain ids would be.
        """
        if not packed:
            raise ValueError("the prompt is empty")
        for place, one in enumerate(packed):
            if not 0 <= one < self.limit:
                raise ValueError(f"prompt[{place}] is {one}, which is no packed id (0..{self.limit - 1}) of this model")
        if max(packed) < self.vocab_size:
            raise ValueError(
                "no token of the prompt has a role but OUTPUT: these look like plain token ids. Render messages with "
                "rolewise.encode, and pack ids and segments with rolewise.serving.PackedIds"
            )
