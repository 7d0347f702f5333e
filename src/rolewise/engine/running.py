"""The rows that are being written, in lanes of like length."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rolewise.engine.kv import Prefix
from rolewise.engine.lanes import Alone, Lane
from rolewise.engine.prompts import Reading
from rolewise.engine.reader import Reader
from rolewise.engine.rows import Row, Written, write
from rolewise.engine.scaling import scaled
from rolewise.engine.store import PrefixStore, block_keys


class _Group:
    """A lane and the rows in it, in its order."""

    def __init__(self, lane: Lane | Alone, rows: list[Row]) -> None:
        self.lane, self.rows = lane, rows


class Running:
    """All rows under way.

    Args:
        reader: computes.
        store: takes what was computed for a row when it leaves.
    """

    def __init__(self, reader: Reader, store: PrefixStore) -> None:
        self._reader, self._store = reader, store
        self._groups: list[_Group] = []

    @property
    def rows(self) -> list[Row]:
        """All of them."""
        return [row for group in self._groups for row in group.rows]

    @property
    def tokens(self) -> int:
        """Positions that they take, padding left out."""
        return sum(sum(group.lane.lengths) for group in self._groups)

    @property
    def held(self) -> int:
        """Positions that their buffers have room for."""
        return sum(group.lane.held for group in self._groups)

    def join(self, row: Row, reading: Reading) -> None:
        """Add a row whose prompt was read."""
        if not self._reader.keys_only:
            self._groups.append(_Group(Alone(self._reader, reading.cache, reading.known), [row]))
            return
        assert reading.prefix is not None
        group = next((one for one in self._groups if _takes(one, row.scale, [reading.known])), None)
        if group is None:
            group = _Group(Lane(self._reader), [])
            self._groups.append(group)
        _add(group, row, reading.prefix, reading.known)

    def write(self) -> Iterator[list[Written]]:
        """Write a token of each row; yields them a lane at a time, before the rows that ended leave."""
        for group in list(self._groups):
            with scaled(self._reader.model, group.rows[0].scale):
                logits = group.lane.step([row.next for row in group.rows])
            written = write(group.rows, logits)
            yield written
            self._keep(group, [not one.last for one in written])
        self._tidy()

    def drop(self, leaves: Callable[[Row], bool]) -> None:
        """Let rows leave."""
        for group in self._groups:
            self._keep(group, [not leaves(row) for row in group.rows])
        self._tidy()

    def _keep(self, group: _Group, keep: list[bool]) -> None:
        if all(keep):
            return
        for place, row in enumerate(group.rows):
            if not keep[place] and not row.failed and isinstance(group.lane, Lane):
                ids, segments = row.so_far()
                length = group.lane.lengths[place]
                self._store.put(row.scale, block_keys(ids[:length], segments[:length]), group.lane.prefix(place))
        group.rows = [group.rows[place] for place in group.lane.keep(keep)]

    def _tidy(self) -> None:
        """Forget empty lanes; rows grow alike as they grow longer, and fewer lanes are fewer passes."""
        self._groups = [group for group in self._groups if group.rows]
        for small in sorted(self._groups, key=lambda group: len(group.rows)):
            for large in self._groups:
                if large is not small and _takes(large, small.rows[0].scale, small.lane.lengths):
                    assert isinstance(small.lane, Lane)
                    for place, (row, length) in enumerate(zip(small.rows, small.lane.lengths, strict=True)):
                        _add(large, row, small.lane.prefix(place), length)
                    self._groups.remove(small)
                    return  # one at a time; the next step sees to the next


def _takes(group: _Group, scale: float, lengths: list[int]) -> bool:
    return group.rows[0].scale == scale and group.lane.takes(lengths)


def _add(group: _Group, row: Row, prefix: Prefix, length: int) -> None:
    assert isinstance(group.lane, Lane)
    group.lane.join(prefix, length)
    group.rows.append(row)
