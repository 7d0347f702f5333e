"""A folded model on a stock vLLM, without our plugin: prompt embeddings carry the roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rolewise.export import FoldedClient, export_model
from tests.training_model import conversations
from tests.vllm.servers import Reference, Server, Ties, running, save_tiny

STOCK = {"VLLM_PLUGINS": ""}


def exported(kind: str, directory: Path, **options: Any) -> Path:
    save_tiny(kind, directory / kind)
    export_model(directory / kind, directory / "folded", to="folded", **options)
    return directory / "folded"


def answers_as_ours(client: FoldedClient, reference: Reference, *, count: int = 12) -> None:
    """Greedy tokens, alone, streamed, and after the same text with other roles (prefix caching is on)."""
    ties, differing = Ties(), 0
    for row in conversations(count, seed=3):
        messages: list[Any] = row["messages"][:3]
        swapped = [messages[0], {**messages[2], "role": "user"}, {**messages[1], "role": "data"}]
        found: list[list[int]] = []
        for one in (messages, swapped, messages):
            answer: Any = client.complete(
                one, max_tokens=12, temperature=0, extra_body={"return_token_ids": True}
            ).choices[0]
            ids, segments = reference.encode(one)
            expected = reference.answer(reference.packed.pack(ids, segments))
            ties.compare(answer.token_ids, expected)
            found.append(answer.token_ids)
        text = client.complete(messages, max_tokens=12, temperature=0).choices[0].text
        assert "".join(part.choices[0].text for part in client.stream(messages, max_tokens=12, temperature=0)) == text
        differing += same_text_other_roles(client, messages)
    ties.check()
    assert differing > count // 2


def same_text_other_roles(client: FoldedClient, messages: list[Any]) -> bool:
    """Whether the very same tokens are answered otherwise when their roles differ, the one right after the other."""
    prompts = client.prompts
    encoding = prompts.render(messages)
    flat = [prompts.scheme.output] * len(encoding.input_ids)
    chances: list[float] = []
    for segments in (encoding.segment_ids, flat, encoding.segment_ids):
        answer: Any = client._openai.completions.create(
            model=client.model, max_tokens=1, temperature=0, logprobs=1,
            **client._prompt(encoding.input_ids, segments, {}),
        )  # fmt: skip
        chances.append(answer.choices[0].logprobs.token_logprobs[0])
    assert chances[0] == pytest.approx(chances[2], abs=1e-4)
    return abs(chances[0] - chances[1]) > 1e-3


@pytest.mark.parametrize(
    ("kind", "head"), [("llama", "untied"), ("llama", "tied"), ("gemma3", "untied"), ("granite", "untied")]
)
def test_stock_vllm_answers_as_ours(kind: str, head: Any, tmp_path: Path) -> None:
    folded = exported(kind, tmp_path, head=head)
    with running(folded, tmp_path / "log", "--enable-prompt-embeds", **STOCK) as server:
        client = FoldedClient(folded, f"{server.url}/v1")
        client.check()
        answers_as_ours(client, Reference(tmp_path / kind))
        if (kind, head) == ("llama", "untied"):
            what_a_stock_engine_refuses_and_what_not(server)


def what_a_stock_engine_refuses_and_what_not(server: Server) -> None:
    chat = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=2)
    assert chat.status_code == 400, chat.text
    assert "template" in chat.text
    # The card says so: nothing stops this.
    assert server.post("/v1/completions", prompt="hi", max_tokens=2).status_code == 200


def test_another_model_behind_the_url_is_refused(tmp_path: Path) -> None:
    folded = exported("llama", tmp_path)
    save_tiny("llama", tmp_path / "scaled", scale=0.0)
    export_model(tmp_path / "scaled", tmp_path / "base", to="folded")  # the bare model
    with running(tmp_path / "base", tmp_path / "log", "--enable-prompt-embeds", **STOCK) as server:
        with pytest.raises(ValueError, match="serves another model than"):
            FoldedClient(folded, f"{server.url}/v1").check()
        FoldedClient(tmp_path / "base", f"{server.url}/v1").check()


def test_gemma_2_does_not_start_with_a_head_of_its_own(tmp_path: Path) -> None:
    """vLLM's Gemma 2 takes its embeddings as the head, whatever the checkpoint says; the client would find it out."""
    folded = exported("gemma2", tmp_path)
    with (
        pytest.raises((RuntimeError, ValueError), match=r"the server ended|runs this architecture in another way"),
        running(folded, tmp_path / "log", "--enable-prompt-embeds", **STOCK) as server,
    ):
        FoldedClient(folded, f"{server.url}/v1").check()
