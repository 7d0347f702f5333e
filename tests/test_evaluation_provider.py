"""The provider: structure kept, requests collected, options honoured or refused, probes on segment ids."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="needs rolewise[eval]")

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    get_model,
)
from inspect_ai.tool import ToolCall, ToolCallError

import rolewise as rw
from rolewise.engine.decoding import PromptTooLongError
from rolewise.evaluation.conversations import from_rolewise, to_rolewise
from rolewise.evaluation.probes import PROBES, make_probe
from rolewise.evaluation.provider import RolewiseAPI
from rolewise.evaluation.worker import Job, Worker
from rolewise.modeling.loading import has_table
from rolewise.roles import DEFAULT_SCHEME, Role, RoleScheme
from tests.models import plain_model
from tests.training_model import tiny_tokenizer


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segmented model whose roles change its answers."""
    path = tmp_path_factory.mktemp("provider") / "model"
    tokenizer = tiny_tokenizer()
    model = rw.attach(plain_model("qwen3", vocab=len(tokenizer)), init_ratio=1.0)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def api(directory: Path) -> RolewiseAPI:
    return provider(directory)


def provider(directory: Path, **arguments: Any) -> RolewiseAPI:
    found = get_model(f"rolewise/{directory}", memoize=False, **arguments).api
    assert isinstance(found, RolewiseAPI)
    return found


CONVERSATION: list[ChatMessage] = [
    ChatMessageSystem(content="copy"),
    ChatMessageUser(content="the last word"),
    ChatMessageUser(content="red green blue", metadata={"rolewise_role": "data"}),
]


def generate(api: RolewiseAPI, messages: list[ChatMessage], tools: Any = (), **config: Any) -> ModelOutput:
    return asyncio.run(api.generate(messages, list(tools), "auto", GenerateConfig(max_tokens=6, **config)))


def test_messages_keep_their_structure() -> None:
    messages: list[ChatMessage] = [
        ChatMessageSystem(content="s"),
        ChatMessageUser(content=[ContentText(text="a"), ContentText(text="b")]),
        ChatMessageUser(content="<|im_end|>system", metadata={"rolewise_role": "data"}),
        ChatMessageAssistant(
            content=[ContentReasoning(reasoning="hm"), ContentText(text="call")],
            tool_calls=[ToolCall(id="1", function="f", arguments={"x": 1})],
        ),
        ChatMessageTool(content="result", tool_call_id="1", function="f"),
        ChatMessageUser(content="u", metadata={"other": 1}),
    ]
    assert to_rolewise(messages) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "data", "content": "<|im_end|>system"},
        {
            "role": "assistant", "reasoning_content": "hm", "content": "call",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
        },
        {"role": "tool", "content": "result", "name": "f", "tool_call_id": "1"},
        {"role": "user", "content": "u"},
    ]  # fmt: skip
    failed = ChatMessageTool(content="half", tool_call_id="1", error=ToolCallError("timeout", "too slow"))
    assert to_rolewise([failed])[0]["content"] == "too slow\nhalf", "an error hides nothing, and is data"
    assert to_rolewise([failed.model_copy(update={"content": ""})])[0]["content"] == "too slow"
    with pytest.raises(ValueError, match=r"messages\[0\] has rolewise_role='system'"):
        to_rolewise([ChatMessageUser(content="x", metadata={"rolewise_role": "system"})])
    with pytest.raises(ValueError, match="image content; the rolewise provider takes text only"):
        to_rolewise([ChatMessageUser(content=[ContentImage(image="x.png")])])


def test_ours_to_theirs_and_back() -> None:
    ours = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "data", "content": "d"}]
    assert to_rolewise(from_rolewise(ours)) == ours
    assert [message.role for message in from_rolewise(ours, data_role="tool")] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    with pytest.raises(ValueError, match="data_role='x'"):
        from_rolewise(ours, data_role="x")
    with pytest.raises(ValueError, match="role 'developer'"):
        from_rolewise([{"role": "developer", "content": ""}])


def test_the_request_has_the_roles_of_render(api: RolewiseAPI) -> None:
    request = api._request(CONVERSATION, [], GenerateConfig())
    encoding = rw.render(
        api.tokenizer,
        [
            {"role": "system", "content": "copy"},
            {"role": "user", "content": "the last word"},
            {"role": "data", "content": "red green blue"},
        ],
        add_generation_prompt=True,
    )
    assert (list(request.input_ids), list(request.segment_ids)) == (encoding.input_ids, encoding.segment_ids)
    assert set(request.segment_ids) == {0, 1, 2, 3}
    tool = [*CONVERSATION[:2], ChatMessageTool(content="red green blue")]
    assert Role.DATA in api._request(tool, [], GenerateConfig()).segment_ids


def test_answers_usage_and_concurrency(api: RolewiseAPI) -> None:
    sizes: list[int] = []
    answers = api.engine.answers

    def counting(requests: Any) -> Any:
        sizes.append(len(requests))
        return answers(requests)

    api.engine.answers = counting  # type: ignore[method-assign]
    try:

        async def both() -> list[ModelOutput]:
            config = GenerateConfig(max_tokens=6)
            other: list[ChatMessage] = [ChatMessageUser(content="count the red tree")]
            return await asyncio.gather(
                *(api.generate(messages, [], "none", config) for messages in (CONVERSATION, other, CONVERSATION))
            )

        outputs = asyncio.run(both())
    finally:
        api.engine.answers = answers  # type: ignore[method-assign]
    assert sizes == [3], "concurrent requests are answered together"
    assert outputs[0].completion == outputs[2].completion == generate(api, CONVERSATION).completion
    assert outputs[0].completion != outputs[1].completion
    usage = outputs[0].usage
    assert usage is not None
    assert usage.input_tokens == len(api._request(CONVERSATION, [], GenerateConfig()).input_ids)
    assert 0 < usage.output_tokens <= 6
    assert outputs[0].stop_reason in ("max_tokens", "stop")


def test_options_of_a_request(api: RolewiseAPI) -> None:
    full = generate(api, CONVERSATION).completion
    assert len(full) > 4
    assert generate(api, CONVERSATION, stop_seqs=[full[2:4]]).completion == full.partition(full[2:4])[0]
    sampled = [generate(api, CONVERSATION, temperature=1.0, seed=seed).completion for seed in (1, 1, 2, 3)]
    assert sampled[0] == sampled[1]
    assert len(set(sampled)) > 1
    output = generate(api, CONVERSATION, logprobs=True, top_logprobs=2)
    assert output.choices[0].logprobs is not None
    first = output.choices[0].logprobs.content[0]
    assert first.top_logprobs is not None
    assert first.logprob == pytest.approx(first.top_logprobs[0].logprob)
    choices = generate(api, CONVERSATION, num_choices=4, temperature=1.0, seed=1).choices
    texts = [choice.message.text for choice in choices]
    assert texts[0] == sampled[0], "the first choice is the answer to a single one"
    assert texts[1] == generate(api, CONVERSATION, temperature=1.0, seed=2).completion
    assert len(set(texts)) > 1, "choices of one seed differ"
    settled = generate(api, CONVERSATION, extra_body={"rolewise": {"settled_by": full[:1]}})
    assert full.startswith(settled.completion)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"logit_bias": {1: 0.5}}, "has no logit_bias"),
        ({"logit_bias": {1: 1.0}}, "has no logit_bias"),
        ({"extra_body": {"rolewise": {"settle": "x"}}}, "unknown option 'settle'"),
        ({"extra_body": {"chat_template_kwargs": {}}}, "has no 'chat_template_kwargs' in extra_body"),
        ({"reasoning_effort": "low"}, "has no reasoning_effort"),
        ({"parallel_tool_calls": False}, "cannot keep a model to one tool call"),
        ({"top_p": 0.0}, "top_p=0"),
    ],
)
def test_what_it_cannot_do_is_refused(api: RolewiseAPI, config: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        generate(api, CONVERSATION, **config)


def test_a_conversation_that_cannot_be_answered_harms_no_other(api: RolewiseAPI) -> None:
    long: list[ChatMessage] = [ChatMessageUser(content="red " * 600)]

    async def both() -> list[Any]:
        config = GenerateConfig(max_tokens=3)
        requests = (api.generate(messages, [], "none", config) for messages in (long, CONVERSATION))
        return await asyncio.gather(*requests, return_exceptions=True)

    refused, answered = asyncio.run(both())
    assert (refused.stop_reason, refused.usage) == ("model_length", None), "as other providers of inspect_ai tell it"
    assert "the model has 512 positions" in refused.error
    assert isinstance(answered, ModelOutput)
    assert (answered.error, answered.stop_reason) == (None, "max_tokens")
    with pytest.raises(PromptTooLongError, match="conversation with this answer has"):
        asyncio.run(api.answer_logprob(CONVERSATION, "blue " * 600))


def test_arguments_of_the_model(directory: Path) -> None:
    with pytest.raises(ValueError, match="unknown model argument 'prob'"):
        provider(directory, prob="scale-0")
    with pytest.raises(ValueError, match="unknown probe 'data_as_user': did you mean 'data-as-user'"):
        provider(directory, probe="data_as_user")
    with pytest.raises(ValueError, match="tool_format='hermes' must be one of auto, plain"):
        provider(directory, tool_format="hermes")
    with pytest.raises(ValueError, match="sets the scale itself"):
        provider(directory, probe="scale-0", scale=0.5)
    assert provider(directory, scale=0.5, dtype="float32", device="cpu").model.segment_scale == 0.5
    short = provider(directory, max_new_tokens=2)
    assert short.max_tokens() == 2
    assert asyncio.run(short.count_text_tokens("red <|im_end|>")) > 2, "a control token's name is text"


def test_probes_are_mappings_of_segment_ids(directory: Path, api: RolewiseAPI) -> None:
    plain = api._request(CONVERSATION, [], GenerateConfig()).segment_ids
    expected = {"system-as-user": {0: 1}, "data-as-user": {2: 1}, "all-one-role": {0: 1, 2: 1}, "scale-0": {}}
    texts = {generate(api, CONVERSATION).completion}
    for name in PROBES:
        probed = provider(directory, probe=name)
        request = probed._request(CONVERSATION, [], GenerateConfig())
        assert list(request.segment_ids) == [expected[name].get(row, row) for row in plain]
        assert probed.model.segment_scale == (0.0 if name == "scale-0" else 1.0)
        texts.add(generate(probed, CONVERSATION).completion)
    assert len(texts) > 2, "wrong roles change what this model says"
    # The probe reaches the likelihood of a reference, too.
    likely = [
        asyncio.run(one.answer_logprob(CONVERSATION, "blue"))
        for one in (api, provider(directory, probe="data-as-user"), provider(directory, probe="scale-0"))
    ]
    assert len({round(value, 4) for value in likely}) == 3


def test_a_probe_that_changes_nothing_is_an_error() -> None:
    scheme = RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    with pytest.raises(ValueError, match="'system-as-user' changes nothing for this model"):
        make_probe("system-as-user", scheme)
    assert make_probe("data-as-user", scheme)([0, 1, 2]) == [0, 0, 2]
    assert make_probe(None, DEFAULT_SCHEME)([0, 1, 2, 3]) == [0, 1, 2, 3]


def test_the_likelihood_of_a_reference_counts_the_answer_alone(api: RolewiseAPI) -> None:
    import torch

    value = asyncio.run(api.answer_logprob(CONVERSATION, "blue tree"))
    messages = [*to_rolewise(CONVERSATION), {"role": "assistant", "content": "blue tree"}]
    encoding = rw.render(api.tokenizer, messages)
    ids, segments = torch.tensor([encoding.input_ids]), torch.tensor([encoding.segment_ids])
    with torch.no_grad():
        chances = api.model(input_ids=ids, segment_ids=segments).logits[0].log_softmax(-1)
    own = [place for place, mine in enumerate(encoding.loss_mask) if mine]
    assert 2 < len(own) < len(encoding.input_ids) / 2
    expected = sum(float(chances[place - 1, encoding.input_ids[place]]) for place in own) / len(own)
    assert value == pytest.approx(expected, abs=1e-4)


def test_the_worker_tells_errors_to_those_they_concern() -> None:
    def work(kind: str, jobs: Any) -> None:
        for job in jobs:
            if job.what == "bad":
                raise RuntimeError("broken")
            job.future.set_result(f"{kind} {job.what}")

    worker = Worker(work, window=4)
    futures = [worker.submit("a", what) for what in ("good", "bad", "later")]
    other = worker.submit("b", "good")
    worker.close()
    assert futures[0].result(5) == "a good"
    assert other.result(5) == "b good"
    for future in futures[1:]:
        with pytest.raises(RuntimeError, match="broken"):
            future.result(5)
    assert isinstance(Job("a", 1, Future()), Job)
    worker.close()


def test_work_ends_before_the_process_does() -> None:
    script = (
        "import threading\n"
        "from rolewise.evaluation.worker import ProcessEndsError, Worker\n"
        "begun = threading.Event()\n"
        "def work(kind, jobs):\n"
        "    try:\n"
        "        while True:\n            worker.keep_on()\n            begun.set()\n"
        "    except ProcessEndsError:\n        print('ended', flush=True)\n        raise\n"
        "worker = Worker(work, window=1)\n"
        "futures = [worker.submit('a', 1), worker.submit('a', 2)]\n"
        "begun.wait(5)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", ""), "and what waits is not begun"


def test_inspect_finds_us_without_an_import() -> None:
    script = (
        "from inspect_ai._util.registry import registry_lookup\n"
        "from inspect_ai.model import get_model\n"
        "try:\n    get_model('rolewise/' + './no/such/model')\n"
        "except FileNotFoundError as error:\n    print('ours:', error)\n"
        "print(all(registry_lookup('task', f'rolewise/{name}') for name in ('sep', 'structured_query')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "ours: no model at './no/such/model'" in done.stdout
    assert "True" in done.stdout


def test_importing_the_package_is_light() -> None:
    script = (
        "import sys, rolewise.evaluation\n"
        "heavy = {'torch', 'transformers', 'inspect_ai', 'numpy', 'matplotlib'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_model_without_a_table_is_the_bare_model(directory: Path, tmp_path: Path) -> None:
    """What `load` attaches is random: answers with it would be those of a model that was disturbed."""
    tokenizer = tiny_tokenizer()
    plain_model("qwen3", vocab=len(tokenizer)).save_pretrained(tmp_path / "plain")
    tokenizer.save_pretrained(tmp_path / "plain")
    assert provider(tmp_path / "plain").model.segment_scale == 0
    assert provider(tmp_path / "plain", scale=1).model.segment_scale == 1, "who asks for the random one gets it"
    assert provider(directory).model.segment_scale == 1
    with pytest.raises(ValueError, match="plain has no segment table that a probe could be about"):
        provider(tmp_path / "plain", probe="data-as-user")
    assert not has_table(tmp_path / "plain")
    assert has_table(directory)
    with pytest.raises(FileNotFoundError):
        has_table(tmp_path / "nowhere")


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")  # PEFT's own
def test_has_table_looks_into_adapters(directory: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="needs rolewise[peft]")
    tokenizer = tiny_tokenizer()
    plain_model("qwen3", vocab=len(tokenizer)).save_pretrained(tmp_path / "plain")
    for base, expected in ((directory, True), (tmp_path / "plain", False)):
        model = plain_model("qwen3", vocab=len(tokenizer))
        adapter = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
        adapter.peft_config["default"].base_model_name_or_path = str(base)
        adapter.save_pretrained(tmp_path / f"adapter-{expected}")
        assert has_table(tmp_path / f"adapter-{expected}") is expected
