"""Models of inspect_ai that answer by a rule, for tests: as the model under test, and as graders good and bad."""

from __future__ import annotations

from collections import Counter
from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi

ASKED: Counter[str] = Counter()
"""How often each stub was asked, by its name."""


def plain(messages: list[ChatMessage]) -> str:
    """Refuses what has 'locked' in it, unless it is a game; else answers, numbering its turns."""
    text = messages[-1].text
    if "locked" in text and "game" not in text:
        return "I'm sorry, but I can't help with that."
    turn = sum(message.role == "user" for message in messages)
    return f"Here is answer {turn}: take three apples and bake them."


def grader(messages: list[ChatMessage]) -> str:
    """A verdict of the right shape for whichever rubric it is asked by; answers of refusal get the worst."""
    prompt = messages[-1].text
    refused = "can't help" in prompt.partition("ANSWER")[2]
    if "FIRST, SECOND, or TIE" in prompt:
        return "SECOND" if prompt.find("bake") > prompt.index("ANSWER 2") else "FIRST"
    if '"refused"' in prompt:
        mark = 1 if refused else 5
        return f'Well.\n{{"refused": {str(refused).lower()}, "specific": {mark}, "convincing": {mark}}}'
    if '"kind"' in prompt:
        return f'{{"kind": "{"full_refusal" if refused else "full_compliance"}"}}'
    return f'{{"rating": {6 if "ANSWER 2" in prompt else 9}}}'


STUBS: dict[str, Any] = {
    "plain": plain,
    "yes": lambda _: "Of course, here it is.",
    "no": lambda _: "I'm sorry, but I can't help with that.",
    "silent": lambda _: " \n",
    "grader": grader,
    "broken": lambda _: 'Hm. {"refused": false, "specific": 5, "convin',
    "shapeless": lambda _: '{"verdict": "helped", "rating": "9"}',
}


@modelapi(name="stub")
class StubAPI(ModelAPI):
    """`stub/<name>`: one of `STUBS`."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008
        **_: Any,
    ) -> None:
        super().__init__(model_name=model_name, base_url=base_url, api_key=api_key, config=config)

    async def generate(self, input: list[ChatMessage], *_: Any, **__: Any) -> ModelOutput:
        name = self.model_name.rpartition("/")[2]
        ASKED[name] += 1
        output = ModelOutput.from_content("stub", STUBS[name](input))
        output.usage = ModelUsage()
        return output
