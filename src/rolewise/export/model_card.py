"""The README.md of an exported model, with the front matter that the model hub reads."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from rolewise.display import safe_text
from rolewise.export.provenance import Provenance, TrainingRun
from rolewise.export.scores import ScoreTable
from rolewise.roles import Role, RoleScheme

if TYPE_CHECKING:
    from rolewise.export.run import ExportResult

PLAIN_PROMPTS = (
    "A stock engine cannot refuse a plain text prompt. It reads all of it as the model's own output (OUTPUT), system "
    "message and untrusted data alike, and nothing is left of the boundary between roles. Let only the client reach "
    "the engine."
)
"""What is said of a folded model wherever one may read it."""

_ISE = "https://arxiv.org/abs/2410.09102"
_KINDS = {"hf": "Rolewise model", "folded": "folded Rolewise model"}


def model_card(
    result: ExportResult,
    *,
    provenance: Provenance,
    architecture: str,
    scheme: RoleScheme,
    tokenizer: Any,
    scores: Sequence[ScoreTable],
) -> str:
    """Markdown with YAML in front; it holds figures and settings, and no text of any corpus.

    Args:
        result: what was exported.
        provenance: where the model comes from.
        architecture: the class of transformers beneath.
        scheme: which row each role takes.
        tokenizer: the model's tokenizer.
        scores: from `read_scores`; none is said to be none.
    """
    parts = [
        _front_matter(result, provenance),
        f"# {_line(provenance.name)}",
        *_introduction(result, provenance, architecture),
        *_roles(result, scheme, tokenizer),
        *(_folded_usage(result) if result.to == "folded" else _hf_usage()),
        *_training(provenance),
        *_scores(scores),
        *_limits(result),
        *_costs(result),
        f"Exported by Rolewise {importlib.metadata.version('rolewise')}.",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(result: ExportResult, provenance: Provenance) -> str:
    values: dict[str, Any] = {}
    if provenance.license:
        values["license"] = provenance.license
    if provenance.base_model:
        values |= {"base_model": provenance.base_model, "base_model_relation": "finetune"}
    values |= {
        "library_name": "transformers" if result.to == "folded" else "rolewise",
        "pipeline_tag": "text-generation",
        "tags": ["rolewise", "instructional-segment-embedding", "prompt-injection", result.to],
    }
    datasets = [run.config["data"] for run in provenance.runs if _is_hub_dataset(run)]
    if datasets:
        values["datasets"] = list(dict.fromkeys(datasets))
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---"


def _is_hub_dataset(run: TrainingRun) -> bool:
    data = str(run.config.get("data", ""))
    return data.count("/") == 1 and not data.startswith((".", "…")) and not data.endswith((".jsonl", ".json"))


def _introduction(result: ExportResult, provenance: Provenance, architecture: str) -> Iterator[str]:
    base = provenance.base_model or provenance.base_said
    yield (
        f"A {_KINDS[result.to]}: `{architecture}` with Instructional Segment Embedding "
        f"([ISE]({_ISE})). Every token of a prompt has a role, and a learned row for it is added to its embedding."
    )
    if result.to == "folded":
        yield f"> **Warning.** {PLAIN_PROMPTS}"
    facts = [
        ("base model", _code(base) if base else "unknown"),
        ("licence", _code(provenance.license) if provenance.license else "unknown; the base model's terms apply"),
        ("weights", f"{result.dtype}, {_size(result.bytes)}"),
    ]
    yield _table(("", ""), facts)


def _roles(result: ExportResult, scheme: RoleScheme, tokenizer: Any) -> Iterator[str]:
    stored: dict[str, Any] = tokenizer.init_kwargs.get("rolewise") or {}
    template = stored.get("template", "own")
    named = "the tokenizer's own" if template == "own" else f"Rolewise's {template}"
    layout = {"header": "has a frame of its own", "inline": "goes into the user turn, marked by its role alone"}
    yield "## Roles"
    rows = [(role.name.lower(), _line(scheme.names[scheme.row(role)]), str(scheme.row(role))) for role in Role]
    yield _table(("role", "segment", "row"), rows)
    yield (
        "The messages' structure gives the roles, never their text: `system` and `developer` are system, `user` is "
        "user, `data` and `tool` are data, `assistant` is output. Whatever text is pasted into a message, it keeps "
        f"that message's role. Factor on the table: {result.scale:g}."
        + (" At 0 the roles change nothing." if result.scale == 0 else "")
    )
    told = layout.get(str(stored.get("data_layout")))
    yield f"Chat template: {named}." + (f" A data message {told}." if told else "")


def _hf_usage() -> Iterator[str]:
    yield "## Use"
    yield (
        '```python\nimport rolewise as rw\n\nmodel, tokenizer = rw.load("THIS_DIRECTORY")\nbatch = rw.encode(\n'
        '    tokenizer,\n    [\n        {"role": "user", "content": "Sum up the page."},\n'
        '        {"role": "data", "content": page},\n    ],\n    add_generation_prompt=True,\n'
        '    return_tensors="pt",\n)\nprint(tokenizer.decode(model.generate(**batch, max_new_tokens=200)[0]))\n```'
    )
    yield "```bash\nrolewise chat THIS_DIRECTORY\nrolewise serve THIS_DIRECTORY\n```"
    yield "No remote code. `rolewise.register()` lets `AutoModelForCausalLM` read it."


def _folded_usage(result: ExportResult) -> Iterator[str]:
    yield "## Serve"
    yield (
        "This is a checkpoint of the base architecture. OUTPUT's row is in its token embeddings, so that generated "
        "tokens are OUTPUT; prompts come as embeddings, which hold the rows of the other roles. The files for that are "
        "in `client/`. A client also reads the token embeddings from the weights."
    )
    yield (
        "```bash\nvllm serve THIS_DIRECTORY --enable-prompt-embeds\n```\n\n"
        '```python\nfrom rolewise.export import FoldedClient\n\nclient = FoldedClient("THIS_DIRECTORY", '
        '"http://127.0.0.1:8000/v1")\nanswer = client.complete(\n'
        '    [{"role": "user", "content": "Sum up the page."}, {"role": "data", "content": page}],\n'
        "    max_tokens=200,\n)\nprint(answer.choices[0].text)\n```"
    )
    yield (
        "The tokenizer beside the weights has no chat template, so that the engine's own chat endpoint refuses. Its "
        "text endpoint does not: see the warning above. vLLM's authors, too, want prompt embeddings taken from trusted "
        "clients only."
    )
    if result.dtype == "bfloat16":
        yield "Serve it in its own dtype (`--dtype auto`)."


def _training(provenance: Provenance) -> Iterator[str]:
    yield "## Training"
    if not provenance.runs:
        yield "Unknown: no record of a training run of Rolewise lies beside the model."
        return
    for number, run in enumerate(provenance.runs):
        if number:
            yield "It started from a model of this run:"
        config, result = run.config, run.result or {}
        facts = [
            ("started from", _code(config.get("model", "?"))),
            ("data", _code(config.get("data", "?"))),
            ("rows", _counted(result, "rows")),
            ("tokens a pass (with loss)", f"{_counted(result, 'tokens')} ({_counted(result, 'labelled_tokens')})"),
            ("segment embeddings", "trained" if config.get("ise", True) else "off: the arm to compare with"),
            ("method", _method(config)),
            ("epochs, steps", f"{config.get('epochs', '?')}, {_counted(result, 'steps')}"),
            ("learning rate", str(config.get("learning_rate", "?"))),
            ("the table's, times", str(config.get("table_lr_multiple", "?"))),
            ("batch", f"{config.get('batch_size', '?')} x {config.get('gradient_accumulation', '?')} rows of up to "
             f"{config.get('max_length', '?')} tokens"),
            ("seed", str(config.get("seed", "?"))),
            ("mean training loss", _loss(result.get("train_loss"))),
            ("evaluation loss", _loss(result.get("eval_loss"))),
            ("versions", _line(", ".join(f"{name} {version}" for name, version in run.versions.items())) or "unknown"),
        ]  # fmt: skip
        yield _table(("", ""), facts)
        if run.data_sha256:
            yield f"Fingerprint of the rows as rendered: `{_line(run.data_sha256)[:64]}`."
        if run.result is None:
            yield "This is a checkpoint of a run that was not finished when it was exported."
    yield "What the rows hold, and under which licence, the record does not say: see where they come from."


def _method(config: dict[str, Any]) -> str:
    lora = config.get("lora")
    if config.get("method") != "lora" or not isinstance(lora, dict):
        return "all weights"
    return f"LoRA of rank {lora.get('rank', '?')}, merged; the table whole"


def _scores(scores: Sequence[ScoreTable]) -> Iterator[str]:
    yield "## Scores"
    if not scores:
        yield (
            "None was measured for this card. `rolewise eval` attacks a model, and `rolewise export ... --scores LOGS` "
            "puts its figures here."
        )
        return
    yield (
        "Value with its 95 % interval, shares in percent, and the number of samples. They were measured before the "
        "export; what the export itself changed is below."
    )
    for table in scores:
        yield f"### {_line(table.suite)}"
        rule = f" {table.rule[0].upper()}{table.rule[1:]}." if table.rule else ""
        unfinished = "" if table.complete else " **The run is not complete.**"
        yield f"`{_line(table.run)}`, {table.samples} samples.{_line(rule, lead=True)}{unfinished}"
        yield _table(("figure", "value", "n"), [(_line(label), _line(value), str(n)) for label, value, n in table.rows])


def _limits(result: ExportResult) -> Iterator[str]:
    yield "## Limits"
    points = [
        "A role tells the model who speaks. It does not stop it by force: an attack may succeed still, and the rate "
        "depends on model, training data and attack. Attacks that are optimised against this very model succeed more "
        "often.",
        "Robustness without utility and ceiling says little. A model that follows nothing is robust.",
        "It does not help against false or harmful content in data that gives no orders, nor against a user who asks "
        "for harm, beyond what training taught.",
        "Tools need limits of their own: give a model that reads untrusted data no power that you would not give to "
        "the data's author.",
        "The boundary holds where Rolewise renders the prompt. Text that was put together by hand has the wrong roles.",
    ]
    if result.to == "folded":
        points.append("A plain text prompt at the engine has no roles at all: see the warning above.")
    yield "\n".join(f"- {point}" for point in points)


def _costs(result: ExportResult) -> Iterator[str]:
    yield "## What the export cost"
    rows = [
        ("weights as they came", _size(result.source_bytes)),
        ("weights as written", _size(result.bytes)),
        ("parameters added by a head of its own", f"{result.added_parameters:,}"),
        (f"rounding to {result.dtype}, merging", str(result.rounding)),
        (f"the form ({result.to})", str(result.written)),
        ("both", str(result.total)),
    ]
    yield _table(("", ""), rows)
    yield (
        f"Measured on {result.total.answers} short prompts, computed in fp32: the mean of each position's logits is "
        "taken out. What an engine's own arithmetic adds is not in it."
    )


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counted(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    return f"{value:,}" if isinstance(value, int) else "unknown"


def _loss(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "not measured"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _code(value: Any) -> str:
    return f"`{_line(str(value)).replace('`', '')}`"


def _line(text: str, *, lead: bool = False) -> str:
    """Text of others as one line that neither breaks a table nor writes HTML."""
    flat = (" " if lead and text else "") + " ".join(safe_text(text).split())
    return flat.replace("|", "\\|").replace("<", "&lt;")
