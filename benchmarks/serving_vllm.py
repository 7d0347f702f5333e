"""vLLM with the plugin against the bare model in the same vLLM: two servers, in turn. Run it in .venv-vllm.

python -m benchmarks.serving_vllm                     # SmolLM2, about 5 minutes on 2 free cores, 6 GB
python -m benchmarks.serving_vllm --model tiny        # about 3 minutes
python -m benchmarks.serving_vllm --output rows.json  # for `python -m benchmarks.serving --vllm rows.json --write`

Sixteen chats at once, of 128 tokens each, get 64. Each round has prompts of its own, so that nothing is found in a
cache. A pair is one round of ours and one of the bare model, one after the other, the first alternating.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from tests.vllm.servers import Server, running, save_tiny

import rolewise as rw
import vllm
from benchmarks.measure import Ratio, compare, machine
from rolewise.modeling import load_tokenizer
from rolewise.roles import DEFAULT_SCHEME
from rolewise.serving.packed import PackedIds

CHATS, PROMPT, ANSWER = 16, 128, 64
TARGET = 0.97


def models(name: str, folder: Path) -> tuple[Path, Path, int]:
    """Ours and the bare model on disk, with the same weights; the table is not zero. Their vocabulary."""
    ours, bare = folder / "ours", folder / "bare"
    if name == "tiny":
        save_tiny("llama", ours)
    else:
        model = rw.load_model(name, init_ratio=0.5)
        model.rolewise_tokenizer = load_tokenizer(name)
        model.save_pretrained(ours)
    plain = _without_table(ours)
    plain.save_pretrained(bare)
    load_tokenizer(ours).save_pretrained(bare)
    return ours, bare, int(plain.config.vocab_size)


def _without_table(ours: Path) -> Any:
    model: Any = rw.load_model(ours, dtype="float32")
    base: Any = type(model).__bases__[-1]
    left_out = {"model_type", "architectures"}
    kept = {
        key: value
        for key, value in model.config.to_dict().items()
        if key not in left_out and not key.startswith("segment_")
    }
    plain = base(base.config_class(**kept))
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if "segment" not in key})
    return plain


class Rounds:
    """Rounds of chats for one server."""

    def __init__(self, server: Server, vocab_size: int, *, packed: bool, seed: int) -> None:
        self._server, self._vocab_size, self._packed = server, vocab_size, packed
        self._rng = random.Random(seed)
        self._client = httpx.Client(timeout=600, limits=httpx.Limits(max_connections=CHATS))

    def __call__(self) -> None:
        """All chats at once."""
        with ThreadPoolExecutor(CHATS) as pool:
            written = list(pool.map(self._ask, [self._prompt() for _ in range(CHATS)]))
        assert written == [ANSWER] * CHATS, written

    def _prompt(self) -> list[int]:
        tokens = [self._rng.randrange(5, min(self._vocab_size, 300)) for _ in range(PROMPT)]
        if not self._packed:
            return tokens
        segments = [0] * 32 + [1] * 32 + [2] * 56 + [3] * 8
        return PackedIds(self._vocab_size, DEFAULT_SCHEME).pack(tokens, segments)

    def _ask(self, prompt: list[int]) -> int:
        body = {
            "model": self._server.model, "prompt": prompt, "max_tokens": ANSWER, "min_tokens": ANSWER,
            "ignore_eos": True, "temperature": 0,
        }  # fmt: skip
        response = self._client.post(f"{self._server.url}/v1/completions", json=body)
        response.raise_for_status()
        return response.json()["usage"]["completion_tokens"]


def measure(name: str, pairs: int) -> Ratio:
    """Tokens a second of ours over those of the bare model."""
    with tempfile.TemporaryDirectory() as folder:
        ours, bare, vocab_size = models(name, Path(folder))
        logs = Path(folder)
        with (
            running(ours, logs / "ours.log", compiled=True) as mine,
            running(bare, logs / "bare.log", compiled=True) as theirs,
        ):
            return compare(
                Rounds(mine, vocab_size, packed=True, seed=1),
                Rounds(theirs, vocab_size, packed=False, seed=1),
                work=f"vLLM, {CHATS} chats of {PROMPT} + {ANSWER} tokens", model=name, target=TARGET,
                judged=name != "tiny", pairs=pairs, warmup=2, higher_is_better=True,
            )  # fmt: skip


def row(ratio: Ratio) -> dict[str, Any]:
    """As benchmarks.serving takes it in."""
    tokens = CHATS * ANSWER
    return {
        "work": ratio.work, "model": ratio.model, "what": "tokens/s, plugin / bare model", "ratio": ratio.ratio,
        "low": ratio.low, "high": ratio.high, "n": ratio.pairs, "ours": tokens / ratio.ours,
        "other": tokens / ratio.bare, "unit": "tokens/s", "target": f"at least {TARGET}",
        "met": ratio.met if ratio.judged else None, "date": time.strftime("%Y-%m-%d"),
        "machine": machine() | {"vllm": vllm.__version__},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("smollm2-135m", "tiny"), default="smollm2-135m")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--output", type=Path, help="where to write the row, as JSON")
    given = parser.parse_args()
    found = row(measure(given.model, given.pairs))
    print(json.dumps(found, indent=2))
    if given.output is not None:
        given.output.write_text(json.dumps([found], indent=2) + "\n")


if __name__ == "__main__":
    main()
