"""How often the refusal classifier fires: on ordinary answers (it should not), and on a corpus made of refusals.

python -m benchmarks.refusal_classifier             # every row of the files in ../shared/data
python -m benchmarks.refusal_classifier --show 20   # and the first hits among the ordinary answers, to be read

Ordinary answers are those of Alpaca, Dolly and AlpacaEval's reference model. Nobody labelled these: a few of them do
refuse, so read what `--show` prints before calling a hit an error. The corpus of refusals answers harmless questions,
too: of 120 of its rows that were labelled by hand in two blind samples, 87 decline, wholly or in part, and the rules
find 84 of these and 2 others (precision 98 [92, 99] %, recall 97 [90, 99] %, 2026-11-30).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from rolewise.display import safe_text
from rolewise.evaluation.refusing import Refusing, refuses
from rolewise.evaluation.statistics import wilson

CORPORA = Path(__file__).parents[2] / "shared" / "data"
ORDINARY = ("sft/alpaca_random_9k.json", "sft/dolly_3k.json", "eval/alpacaeval805_davinci003.json")
REFUSALS = ("sft/safety_tuned_2483.json",)


def outputs(path: Path) -> list[str]:
    """The answers of a file; rows without any are left out."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [row["output"] for row in rows if refuses(row["output"]) is not Refusing.EMPTY]


def line(name: str, verdicts: list[Refusing]) -> str:
    counts = Counter(verdicts)
    declines = wilson(counts[Refusing.REFUSED] + counts[Refusing.PARTIAL], len(verdicts))
    shares = f"{100 * declines.value:6.2f} % [{100 * declines.low:.2f}, {100 * declines.high:.2f}]"
    return f"{name:36} {len(verdicts):6} {counts[Refusing.REFUSED]:8} {counts[Refusing.PARTIAL]:8}  {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=CORPORA)
    parser.add_argument("--show", type=int, default=0, help="how many hits among the ordinary answers to print")
    options = parser.parse_args()
    print(f"{'':36} {'rows':>6} {'refused':>8} {'partial':>8}  declines (95 % Wilson)")
    for title, names in (("ordinary answers", ORDINARY), ("corpus of refusals", REFUSALS)):
        verdicts: list[Refusing] = []
        for name in names:
            path = options.data / name
            if not path.is_file():
                print(f"{name:36} is not in {options.data}")
                continue
            found = [(output, refuses(output)) for output in outputs(path)]
            verdicts += [verdict for _, verdict in found]
            print(line(name, [verdict for _, verdict in found]))
            if names is ORDINARY:
                hits = [(output, verdict) for output, verdict in found if verdict.declines][: options.show]
                for output, verdict in hits:
                    print(f"    {verdict}: {safe_text(' '.join(output.split())[:160])}")
        if len(names) > 1 and verdicts:
            print(line(title, verdicts))


if __name__ == "__main__":
    main()
