"""What the tables of a report are made of."""

from __future__ import annotations

from dataclasses import dataclass

from rolewise.evaluation.statistics import Estimate
from rolewise.reporting.sections import Section
from rolewise.reporting.wording import measured, p_value


@dataclass(frozen=True)
class Cell:
    """What stands in a table, and what it is sorted by (nothing where there is no figure)."""

    text: str
    key: str | float | int = ""


@dataclass(frozen=True)
class Column:
    """A heading."""

    name: str
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for people."""

    key: str
    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    caption: str
    empty: str = "Nothing to show."
    """What to say when there are no rows."""


def text_cell(value: str) -> Cell:
    """A text, sorted by itself."""
    return Cell(value, value)


def figure_cell(estimate: Estimate | None, figure: str = "", *, signed: bool = False) -> Cell:
    """A figure with its interval, by its name (`wording.measured`)."""
    return Cell(measured(figure, estimate, signed=signed), "" if estimate is None else round(estimate.value, 6))


def basis(section: Section) -> str:
    """What the figures of a table are; models, data, seed and versions stand once, above the section's tables."""
    return f"Percent [interval]. {section.rule}."


def p_cell(value: float | None) -> Cell:
    """A p value."""
    return Cell(p_value(value), "" if value is None else round(value, 6))
