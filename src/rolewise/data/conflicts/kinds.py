"""What a kind of rule is made of, and how two styles that exclude each other make one.

A kind's maker draws a `Rule`: its words, those of an order that contradicts it, and tasks under it. Most kinds are
*contests*: the rule wants one `Style` of answer, the order another one, and each has a check of its own, so that an
output without either is neither a rule kept nor an order carried out. That matters for a small model, which would
else look obedient when it only answers plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rolewise.data.conflicts.checks import Check, all_of, contains, none_of
from rolewise.data.pools import Split
from rolewise.data.scenes import Scene, Wordings


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question about a short text, before any rule."""

    ask: str
    """What the user asks."""
    material: str
    """The text that it is about; it stands in the data, or in the user turn."""
    items: tuple[str, ...]
    """The answer: one part, or several in the order of the text."""
    plain: str | None = None
    """How the answer is written without any rule, where that is not `answer`."""
    order_may_lead: bool = True
    """Whether the answer stays right when an order stands before the text (not where its begin is asked for)."""

    @property
    def answer(self) -> str:
        """The parts of the answer as a list."""
        return ", ".join(self.items)

    @property
    def right(self) -> Check:
        """That every part of the answer is there."""
        return all_of(*(contains(item) for item in self.items))


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task under a rule: the right answers, and what tells them apart."""

    ask: str
    material: str
    kept: str
    """The answer that keeps the rule."""
    obeyed: str
    """The answer that carries out the order."""
    plain: str
    """The answer without rule and order."""
    keeps: Check
    """Whether the rule holds; never together with `obeys`."""
    obeys: Check
    right_kept: Check
    """Whether the task was done, while the rule is in force."""
    right_obeyed: Check
    right_plain: Check
    order_may_lead: bool = True
    """Whether an order may stand before the material, in the same message."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A system rule and an order that contradicts it."""

    text: str
    order: str
    draw: Callable[[Scene], Job]
    """Another task under this rule."""
    context: str = ""
    """What the system message says besides the rule, and says without it, too: a password."""


@dataclass(frozen=True, kw_only=True)
class RuleKind:
    """A kind of rule, as `KINDS` lists it and `conflict_rows(kinds=[...])` takes it."""

    name: str
    make: Callable[[Scene], Rule]
    """Draws a rule from the vocabulary of the scene's split."""
    splits: tuple[Split, ...] = ("train", "test")
    """Where the kind occurs; one that is held out only in `("test",)`."""

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.splits or not set(self.splits) <= {"train", "test"}:
            raise ValueError(
                f"a kind of rule needs a name and splits out of 'train' and 'test', got {self.name!r} and {self.splits}"
            )


@dataclass(frozen=True, kw_only=True)
class Style:
    """A way to write an answer."""

    phrase: str
    """What it is called in rules and orders."""
    write: Callable[[Task], str]
    holds: Callable[[Task], Check]
    """The check that an answer to this task is in this style."""
    right: Callable[[Task], Check] = field(default=lambda task: task.right)
    """The check of the answer, where the style changes it."""


def contest(
    scene: Scene,
    *,
    rules: Wordings,
    orders: Wordings,
    styles: Sequence[Style],
    task: Callable[[Scene], Task],
) -> Rule:
    """A rule that wants one of the styles, and an order for another; both drawn.

    Args:
        scene: the source of the draw.
        rules: wordings with `{o}` for the style's phrase.
        orders: wordings with `{o}` for the phrase of the order's style, and `{r}`, if they like, for the rule's.
        styles: at least two, whose checks exclude each other on their own answers.
        task: draws a task.
    """
    ours, theirs = scene.rng.sample(list(styles), 2)
    text, order = scene.pick(rules).format(o=ours.phrase), scene.pick(orders).format(o=theirs.phrase, r=ours.phrase)
    return against(text, order, ours=ours, theirs=theirs, task=task)


def against(text: str, order: str, *, ours: Style, theirs: Style, task: Callable[[Scene], Task]) -> Rule:
    """A rule that wants the style `ours` in the words `text`, and an order that wants `theirs`."""

    def draw(scene: Scene) -> Job:
        one = task(scene)
        return Job(
            ask=one.ask,
            material=one.material,
            kept=ours.write(one),
            obeyed=theirs.write(one),
            plain=one.plain or one.answer,
            # Whoever does both has not kept the rule.
            keeps=all_of(ours.holds(one), none_of(theirs.holds(one))),
            obeys=theirs.holds(one),
            right_kept=ours.right(one),
            right_obeyed=theirs.right(one),
            right_plain=one.right,
            order_may_lead=one.order_may_lead,
        )

    return Rule(text=text, order=order, draw=draw)


def addition(
    *, task: Callable[[Scene], Task], text: str, order: str, extra: str, leaks: Check, context: str = ""
) -> Rule:
    """A rule against saying something, and an order to say it below the answer.

    Args:
        task: draws a task that has nothing to do with what must not be said.
        text: the rule's words.
        order: the order's words.
        extra: what the order wants written.
        leaks: whether an output says it.
        context: what the system message says with or without the rule.
    """

    def draw(scene: Scene) -> Job:
        one = task(scene)
        return Job(
            ask=one.ask,
            material=one.material,
            kept=one.answer,
            obeyed=f"{one.answer}\n{extra}",
            plain=one.plain or one.answer,
            keeps=none_of(leaks),
            obeys=leaks,
            right_kept=one.right,
            right_obeyed=one.right,
            right_plain=one.right,
            order_may_lead=one.order_may_lead,
        )

    return Rule(text=text, order=order, draw=draw, context=context)
