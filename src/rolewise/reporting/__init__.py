"""Tables, figures and the HTML page of an evaluation.

    from rolewise.evaluation import read_runs
    from rolewise.reporting import build_sections, write_report

    write_report(build_sections(read_runs(["logs"])), "report")

`rolewise report` does the same. matplotlib and jinja2 are imported when a report is written, not before.
"""

from rolewise.reporting.arms import Arm
from rolewise.reporting.comparing import Compared
from rolewise.reporting.csv_export import csv_files
from rolewise.reporting.sections import LengthPart, Section, build_sections
from rolewise.reporting.tables import tables
from rolewise.reporting.write import write_report

__all__ = ["Arm", "Compared", "LengthPart", "Section", "build_sections", "csv_files", "tables", "write_report"]
