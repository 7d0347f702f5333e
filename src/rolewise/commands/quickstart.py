"""`rolewise quickstart`: two arms on real weights, attacked and compared."""

from __future__ import annotations

from collections.abc import Sequence

from rolewise.commands.arguments import parse

TEACH = """See what roles do, on real weights: fine-tune SmolLM2-135M twice on the same generated rows, with a data
header alone and with segment embeddings as well, attack both and the base model, and print one table.

About 10 minutes on two CPU cores; no hub, no GPU. A killed run goes on where it was when started again, and a finished
one shows its report. The report says where the models are and how to chat with them.

examples:
  rolewise quickstart
  rolewise quickstart --minutes 3 --output runs/short
  rolewise quickstart --fresh --seed 1
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    from rolewise.quickstart.plan import QuickstartConfig

    config = parse(QuickstartConfig, arguments, command="quickstart", teach=TEACH)

    from rolewise.commands.models import quiet_libraries
    from rolewise.quickstart import run

    quiet_libraries()
    return run(config)
