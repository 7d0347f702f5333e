"""The Instruction Hierarchy benchmark as one command: `rolewise reproduce instruction-hierarchy`.

`plan` says what is run, `readings` turns runs into figures, `page` writes them down.
"""

from rolewise.reproduce.page import Page, write_page
from rolewise.reproduce.plan import Inputs, Part, parts
from rolewise.reproduce.readings import Readings, gaps

__all__ = ["Inputs", "Page", "Part", "Readings", "gaps", "parts", "write_page"]
