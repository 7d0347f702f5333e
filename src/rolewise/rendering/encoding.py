"""Conversations to token ids, each with its segment: what training and serving both call."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from rolewise.messages import parse_messages, plain_json
from rolewise.rendering.conversation import Draft, draft
from rolewise.rendering.frames import Side
from rolewise.rendering.markers import DOCUMENTS, TOOLS
from rolewise.rendering.profile import Rendered, TemplateProfile
from rolewise.rendering.schemes import scheme_of
from rolewise.rendering.tokenization import PieceEncoder, TemplateText
from rolewise.rendering.truncation import Overflow, Piece, fit
from rolewise.roles import Role, RoleScheme

TrainOn = Literal["all", "last"]


@dataclass(frozen=True)
class Encoding:
    """A conversation as a model sees it; the three lists have one entry for each token."""

    input_ids: list[int]
    segment_ids: list[int]
    """The row of the segment table that each token takes."""
    loss_mask: list[int]
    """1 for the tokens to train on: the assistant's own, its end of turn included."""
    text: str
    """The rendered text, before any truncation."""
    truncated_tokens: int = 0
    """How many tokens of data were cut to keep within `max_length`."""


_FrameTokens = tuple[list[int], list[Role], list[int], list[int]]
"""Ids, roles, and which tokens are trained with the message before, and with the message after."""


class _Workshop:
    """What is worked out once for a tokenizer and its template."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        self.source = source
        self.text = TemplateText(source)
        self.encoder = PieceEncoder(tokenizer, self.text.literals)
        self.profiles: dict[str, TemplateProfile] = {}
        self.frames: dict[tuple[Any, ...], _FrameTokens] = {}

    def profile(self, tokenizer: Any, kwargs: dict[str, Any]) -> TemplateProfile:
        key = json.dumps(kwargs, sort_keys=True) if kwargs else ""
        if key not in self.profiles:
            self.profiles[key] = TemplateProfile(
                tokenizer, self.source, self.text, self.encoder, kwargs, _stored_layout(tokenizer)
            )
        return self.profiles[key]


_WORKSHOPS: weakref.WeakKeyDictionary[Any, dict[tuple[Any, ...], _Workshop]] = weakref.WeakKeyDictionary()


def workshop(tokenizer: Any, tools: Any = None) -> _Workshop:
    """The cached workshop of a tokenizer; a new one when its template or its added tokens changed."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise ValueError(
            "the tokenizer has no chat template; give it one with "
            "rolewise.prepare_tokenizer(tokenizer, 'chatml') (or 'delimiter', 'text')"
        )
    source = tokenizer.get_chat_template(None, tools)
    stamp = (source, len(tokenizer), tuple(tokenizer.all_special_tokens), _stored_layout(tokenizer))
    known = _WORKSHOPS.setdefault(tokenizer, {})
    if (found := known.get(stamp)) is None:
        while len(known) >= 4:
            known.pop(next(iter(list(known))), None)
        found = known[stamp] = _Workshop(tokenizer, source)
    return found


def _stored_layout(tokenizer: Any) -> str | None:
    return (tokenizer.init_kwargs.get("rolewise") or {}).get("data_layout")


def render(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    scheme: RoleScheme | None = None,
    tools_role: Role = Role.SYSTEM,
    train_on: TrainOn = "all",
    max_length: int | None = None,
    overflow: Overflow = "refuse",
    **template_kwargs: Any,
) -> Encoding:
    """Render one conversation with the tokenizer's own chat template, and give every token its role.

    A role comes from the structure of the messages alone. No content changes the ids or segments of anything
    outside itself, nor yields a control token.

    Args:
        tokenizer: a tokenizer with a fast backend and a chat template.
        messages: OpenAI-style dicts (see `rolewise.messages.parse_messages`).
        tools: JSON schemas of tools (or Python functions, as transformers takes them).
        documents: documents for templates that render them; DATA.
        add_generation_prompt: end with the header of an assistant's message, which is OUTPUT.
        scheme: the rows of the segment table that the roles take; None for those of the model that the tokenizer was
            loaded for (`rolewise.load` notes them in it), and the default ones where none are noted.
        tools_role: the role of tool schemas; `Role.DATA` for tools of third parties.
        train_on: which assistant messages the loss mask covers.
        max_length: the most tokens that the result may have.
        overflow: what to do with more: refuse, or cut the ends of data.
        **template_kwargs: arguments of the template (such as `enable_thinking`).

    Raises:
        ValueError: when the template cannot express the conversation, the result is too long, or `scheme` is another
            than the model's.
        TypeError: when a message or an option has the wrong type.
    """
    job = _Job.of(
        tokenizer,
        tools=tools,
        documents=documents,
        add_generation_prompt=add_generation_prompt,
        scheme=scheme,
        tools_role=tools_role,
        train_on=train_on,
        max_length=max_length,
        overflow=overflow,
        **template_kwargs,
    )
    return job.render(messages)


@dataclass(frozen=True)
class _Job:
    """The options of a rendering, checked once for all its conversations."""

    shop: _Workshop
    profile: TemplateProfile
    tools: list[Any] | None
    documents: list[Any] | None
    add_generation_prompt: bool
    scheme: RoleScheme
    tools_role: Role
    train_on: TrainOn
    max_length: int | None
    overflow: Overflow

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        scheme: RoleScheme | None = None,
        tools_role: Role = Role.SYSTEM,
        train_on: TrainOn = "all",
        max_length: int | None = None,
        overflow: Overflow = "refuse",
        **template_kwargs: Any,
    ) -> _Job:
        if train_on not in ("all", "last"):
            raise ValueError(f"train_on={train_on!r} must be 'all' or 'last'")
        if overflow not in ("refuse", "truncate_data"):
            raise ValueError(f"overflow={overflow!r} must be 'refuse' or 'truncate_data'")
        if tools_role not in (Role.SYSTEM, Role.DATA):
            raise ValueError(f"tools_role={tools_role!r} must be Role.SYSTEM or Role.DATA")
        if max_length is not None and (type(cast("object", max_length)) is not int or max_length < 1):
            raise ValueError(f"max_length={max_length!r} must be a whole number above 0, or None")
        chosen = scheme_of(tokenizer, scheme)
        schemas = _schemas(tools)
        given = plain_json(list(documents), "documents") if documents else None
        shop = workshop(tokenizer, schemas)
        profile = shop.profile(tokenizer, plain_json(template_kwargs, "template arguments"))
        return cls(
            shop, profile, schemas, given, add_generation_prompt, chosen, tools_role, train_on, max_length, overflow
        )

    def render(self, messages: Any) -> Encoding:
        plan = draft(parse_messages(messages), self.profile.layout, self.tools, self.documents, self.tools_role)
        rendered = self.profile.render(plan, self.add_generation_prompt)
        pieces = _pieces(self.shop, self.profile, plan, rendered, self.add_generation_prompt, self.train_on)
        cut = fit(pieces, self.max_length, self.overflow)
        ids: list[int] = []
        roles: list[Role] = []
        train: list[int] = []
        for piece in pieces:
            ids += piece.ids
            roles += piece.roles
            train += piece.train
        rows = self.scheme.rows
        return Encoding(ids, [rows[role] for role in roles], train, rendered.text, cut)


def _schemas(tools: Sequence[Any] | None) -> list[Any] | None:
    if not tools:
        return None
    from transformers.utils.chat_template_utils import get_json_schema

    if isinstance(tools, (str, Mapping)):
        raise TypeError(f"tools must be a list of JSON schemas, not {type(tools).__name__}")
    schemas = [get_json_schema(tool) if callable(tool) else tool for tool in tools]
    for number, schema in enumerate(schemas):
        if not isinstance(schema, Mapping):
            raise TypeError(f"tools[{number}] must be a JSON schema (a dict), not {type(schema).__name__}")
    return plain_json(schemas, "tools")


def _pieces(
    shop: _Workshop, profile: TemplateProfile, plan: Draft, rendered: Rendered, prompt: bool, train_on: TrainOn
) -> list[Piece]:
    assistants = [number for number, turn in enumerate(plan.turns) if turn.role is Role.OUTPUT]
    trained = set(assistants if train_on == "all" else assistants[-1:])
    pieces: list[Piece] = []
    before: Side | None = None
    count = len(rendered.indices)
    owners = _owners(profile, plan, rendered)
    for position in range(count + 1):
        leaf = plan.leaves[rendered.indices[position]] if position < count else None
        after = None if leaf is None else _side(plan, owners[position])
        if frame := rendered.frames[position]:
            ids, roles, with_before, with_after = _frame_tokens(shop, profile, frame, before, after, prompt)
            train = [0] * len(ids)
            if before is not None and before.owner in trained:
                train = with_before
            if after is not None and after.owner in trained:
                train = [a | b for a, b in zip(train, with_after, strict=True)]
            pieces.append(Piece(ids, roles, train))
        if leaf is not None:
            ids = shop.encoder.content(rendered.texts[position], leaf.label)
            flag = int(owners[position] in trained)
            role = leaf.role if owners[position] == leaf.owner else plan.turns[owners[position]].role
            pieces.append(Piece(ids, [role] * len(ids), [flag] * len(ids), leaf.role is Role.DATA))
        before = after
    return pieces


def _owners(profile: TemplateProfile, plan: Draft, rendered: Rendered) -> list[int]:
    """Which turn each string in the rendering stands in.

    It is its own, but for the name of a call that a template repeats in the header of the call's result.
    """
    owners = [plan.leaves[index].owner for index in rendered.indices]
    end, header = profile.rules.call_end, profile.rules.headers.get("tool", "")
    for position in range(1, len(owners) - 1):
        here, following = owners[position], owners[position + 1]
        if (
            end
            and header
            and here == owners[position - 1]
            and here >= 0
            and following == here + 1
            and plan.turns[here].role is Role.OUTPUT
            and plan.turns[following].kind == "tool"
            and rendered.frames[position].endswith(end + header)  # and not a further call in the same turn
        ):
            owners[position] = following
    return owners


def _side(plan: Draft, owner: int) -> Side:
    if owner == TOOLS:
        return Side(owner, "tools", Role.SYSTEM)
    if owner == DOCUMENTS:
        return Side(owner, "documents", Role.SYSTEM)
    turn = plan.turns[owner]
    return Side(owner, turn.kind, turn.role)


def _frame_tokens(
    shop: _Workshop, profile: TemplateProfile, frame: str, before: Side | None, after: Side | None, prompt: bool
) -> _FrameTokens:
    same = before is not None and after is not None and before.owner == after.owner
    key = (id(profile), frame, before and (before.kind, before.role), after and (after.kind, after.role), same, prompt)
    if (known := shop.frames.get(key)) is not None:
        return known
    split = profile.rules.split(frame, before, after, prompt)
    first = before.role if before is not None else Role.SYSTEM
    second = after.role if after is not None else Role.OUTPUT
    ended = profile.rules.control.search(frame, split.tail, split.header)
    tail_trained = ended.end() if ended else split.header
    ids: list[int] = []
    starts: list[int] = []
    # Cut where a generation prompt would end, so that an answer's header has the same ids in training.
    for begin, end in ((0, split.answer), (split.answer, len(frame))):
        if begin < end:
            numbers, offsets = shop.encoder.frame(frame[begin:end], opening=before is None and begin == 0)
            ids += numbers
            starts += [begin + offset for offset in offsets]
    roles = [first if start < split.header else second for start in starts]
    output = before is not None and before.role is Role.OUTPUT
    with_before = [int(output and start < tail_trained) for start in starts]
    answers = after is not None and after.role is Role.OUTPUT and not same
    with_after = [int(answers and start >= split.answer) for start in starts]
    if len(shop.frames) > 4096:
        shop.frames.clear()
    found = shop.frames[key] = ids, roles, with_before, with_after
    return found  # not looked up again: a server renders in several threads, and another may just have cleared it


def encode(
    tokenizer: Any,
    messages: Sequence[Any],
    *,
    add_generation_prompt: bool = False,
    return_tensors: Literal["pt"] | None = None,
    padding_side: Literal["left", "right"] = "left",
    return_loss_mask: bool = False,
    **options: Any,
) -> Any:
    """Encode a conversation, or a list of them, for a segmented model.

    Args:
        tokenizer: a tokenizer with a fast backend and a chat template.
        messages: a conversation, or a list of conversations.
        add_generation_prompt: end with the header of an assistant's message.
        return_tensors: "pt" for padded tensors of shape [batch, seq]; without it lists, flat for one conversation.
        padding_side: where to pad; left for generation.
        return_loss_mask: also return `loss_mask`.
        **options: as for `render`.

    Returns:
        A `BatchEncoding` with `input_ids`, `segment_ids` and `attention_mask`. Padding is OUTPUT.

    Raises:
        ValueError, TypeError: as `render` does; in a list, the error names the conversation.
    """
    from transformers import BatchEncoding

    if return_tensors not in (None, "pt"):
        raise ValueError(f"return_tensors={return_tensors!r} must be 'pt' or None")
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side={padding_side!r} must be 'left' or 'right'")
    batched = _is_batch(messages)
    conversations = messages if batched else [messages]
    job = _Job.of(tokenizer, add_generation_prompt=add_generation_prompt, **options)
    encodings: list[Encoding] = []
    for number, conversation in enumerate(conversations):
        try:
            encodings.append(job.render(conversation))
        except (ValueError, TypeError) as error:
            if not batched:
                raise
            raise type(error)(f"conversation {number}: {error}") from error
    columns: dict[str, list[list[int]]] = {
        "input_ids": [encoding.input_ids for encoding in encodings],
        "segment_ids": [encoding.segment_ids for encoding in encodings],
        "attention_mask": [[1] * len(encoding.input_ids) for encoding in encodings],
    }
    if return_loss_mask:
        columns["loss_mask"] = [encoding.loss_mask for encoding in encodings]
    if return_tensors is None:
        return BatchEncoding(columns if batched else {name: rows[0] for name, rows in columns.items()})
    import torch

    fill = {"input_ids": _pad_id(tokenizer), "segment_ids": job.scheme.output}
    longest = max(len(encoding.input_ids) for encoding in encodings)

    def pad(row: list[int], value: int) -> list[int]:
        extra = [value] * (longest - len(row))
        return extra + row if padding_side == "left" else row + extra

    return BatchEncoding(
        {name: torch.tensor([pad(row, fill.get(name, 0)) for row in rows]) for name, rows in columns.items()}
    )


def _is_batch(messages: Any) -> bool:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise TypeError(f"expected a conversation or a list of conversations, not {type(messages).__name__}")
    items = cast("Sequence[Any]", messages)
    if not items:
        raise ValueError("the conversation is empty; give at least one message")
    return isinstance(items[0], Sequence) and not isinstance(items[0], (str, bytes))


def _pad_id(tokenizer: Any) -> int:
    for number in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if number is not None:
            return int(number)
    return 0


def data_layout(tokenizer: Any) -> Literal["header", "inline"]:
    """How the tokenizer's template takes a data message: with a header of its own, or inside the user turn."""
    return cast("Literal['header', 'inline']", workshop(tokenizer).profile(tokenizer, {}).layout.data)


def control_token_ids(tokenizer: Any) -> frozenset[int]:
    """The ids that only a template may write: special tokens, and those that the template itself emits."""
    return workshop(tokenizer).encoder.control
