"""The quickstart: two arms fine-tuned on generated rows, attacked, and shown in one table."""

from rolewise.quickstart.plan import QuickstartConfig
from rolewise.quickstart.run import run

__all__ = ["QuickstartConfig", "run"]
