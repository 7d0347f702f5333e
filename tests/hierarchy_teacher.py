"""Small sources and a teacher that answers the hierarchy's prompts, for tests of the pipeline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

MANNERS = {"attempt": "extract", "request": "conflict", "question": "ask"}
"""What a prompt with nothing but a system message and a manner calls it."""


def write_sources(folder: Path, rows: int = 12) -> dict[str, str]:
    """An UltraChat-shaped file, a ShareGPT-shaped one with system messages and an Alpaca-shaped one."""
    plain = [
        {"messages": [{"role": "user", "content": f"Sum up this. Note {i}: the ferry left."},
                      {"role": "assistant", "content": f"Ferry {i} left."},
                      {"role": "user", "content": "And then?"}, {"role": "assistant", "content": "Nothing."}]}
        for i in range(rows)
    ]  # fmt: skip
    guided = [
        {"conversations": [{"from": "system", "value": f"You are guide {i}. Never speak of boats."},
                           {"from": "human", "value": f"Where is hall {i}?"},
                           {"from": "gpt", "value": f"Hall {i} is upstairs."}]}
        for i in range(rows)
    ]  # fmt: skip
    alpaca = [
        {"instruction": f"Name the colour in text {i}.", "input": f"The door of house {i} is red." if i % 2 else "",
         "output": f"It is red {i}. It was painted."}
        for i in range(4 * rows)
    ]  # fmt: skip
    names: dict[str, str] = {}
    for name, found in {"plain": plain, "guided": guided, "alpaca": alpaca}.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
        names[name] = str(path)
    return names


def recipe_values(sources: dict[str, str], rows: int = 12, **teacher: Any) -> dict[str, Any]:
    """A recipe with every stage that a teacher makes, and one that waits for another."""
    return {
        "sources": {"chat": {"path": sources["plain"]}, "guided": {"path": sources["guided"]}},
        "stages": {
            "decomposed": {"kind": "decompose", "source": "chat", "take": rows},
            "follow": {"kind": "regenerate", "source": "guided", "take": rows},
            "override": {"kind": "override", "source": "follow", "take": rows - 4},
            "conflict": {"kind": "conflict", "source": "follow", "take": rows - 4},
            "extract": {"kind": "extract", "source": "follow", "take": rows - 4},
            "ask": {"kind": "ask", "source": "follow", "take": rows - 4},
        },
        "mix": dict.fromkeys(("decomposed", "follow", "override", "conflict", "extract", "ask"), "all"),
        "teacher": {"model": "mock", "timeout": 60, "concurrency": 4, **teacher},
    }


def asked(text: str) -> tuple[str, dict[str, str]]:
    """Which prompt a request's last message is of, and what stands in its places."""
    values: dict[str, str] = dict(re.findall(r"<([a-z_]+)-\w+>\n(.*?)\n</\1-\w+>", text, re.DOTALL))
    if "prompt" in values:
        return "decompose", values
    if "request" in values:
        return "override", values
    if "user" in values:
        return "regenerate", values
    manner = re.search(r"The manner of the (\w+):", text)
    assert manner is not None, text
    return MANNERS[manner[1]], values


def good_answer(text: str) -> str:
    """What a good teacher answers."""
    prompt, values = asked(text)
    if prompt == "decompose":
        ask, _, data = values["prompt"].partition(". ")
        return json.dumps({"system": "You sum up notes.", "user": f"{ask}.", "data": data})
    if prompt == "regenerate":
        return f"As the guide I say: {values['user']}"
    number = re.search(r"\d+", values["system"])
    name = f"{prompt} {number[0] if number else ''}"
    answer = {"user": f"{name}: a question.", "answer": f"{name}: an answer."}
    if prompt == "conflict":
        answer["rule"] = "Never speak of boats."
    return json.dumps(answer)
