"""Small tasks about a short text, each with an answer that a program checks.

Every maker draws a text from the scene's split, an instruction in one of the split's wordings, the answer, a
plausible wrong answer and the competing answers that an output must not contain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rolewise.data.pools import MONTHS
from rolewise.data.scenes import Draft, Scene, Wordings
from rolewise.data.wordings import (
    COMPARE,
    COUNT,
    COUNT_ASKS,
    DATE,
    DATE_ASKS,
    EVENT_FACTS,
    FIRST_SENTENCE_ASKS,
    FIRST_WORD_ASKS,
    JOIN_ASKS,
    LOOKUP,
    LOOKUP_FOOD_ASKS,
    LOOKUP_NAME_ASKS,
    MENTION_ASKS,
    REVIEW_ASKS,
    REVIEW_OPENINGS,
    REVIEWS,
    SHOP_FACTS,
    TOPIC_ASKS,
    TOPICS,
    Fact,
)


def _facts(scene: Scene, count: int) -> tuple[str, list[tuple[Fact, str, str]]]:
    """The subject of a note, and its facts as (fact, value, sentence)."""
    if scene.chance(0.5):
        subject, kinds = scene.thing(), SHOP_FACTS
    else:
        subject, kinds = scene.event(), EVENT_FACTS
    drawn: list[tuple[Fact, str, str]] = []
    for fact in scene.rng.sample(kinds, count):
        value = fact.draw(scene)
        drawn.append((fact, value, scene.pick(fact.sentences).format(s=subject, v=value)))
    return subject, drawn


def extract(scene: Scene) -> Draft:
    """Copy one fact out of a note."""
    subject, drawn = _facts(scene, 3)
    fact, value, _ = scene.rng.choice(drawn)
    text = " ".join(scene.shuffled([sentence for *_, sentence in drawn]))
    return Draft(
        instruction=scene.pick(fact.asks).format(s=subject),
        data=scene.with_fillers(text, scene.rng.randrange(2)),
        answer=value,
        decoy=fact.draw(scene),
        wrong=tuple(other for _, other, _ in drawn if other != value),
    )


def look_up(scene: Scene) -> Draft:
    """Find who goes with what in a small table."""
    pairs = [(scene.name(), scene.food()) for _ in range(scene.rng.choice((3, 4)))]
    opening, line, separator = scene.rng.choice(LOOKUP[scene.split])
    data = opening + separator.join(line.format(n=name, f=food) for name, food in pairs)
    name, food = scene.rng.choice(pairs)
    others = [pair for pair in pairs if pair[0] != name]
    if scene.chance(0.6):
        instruction, answer = scene.pick(LOOKUP_NAME_ASKS).format(f=food), name
        wrong = tuple(pair[0] for pair in others)
    else:
        instruction, answer = scene.pick(LOOKUP_FOOD_ASKS).format(n=name), food
        wrong = tuple(pair[1] for pair in others)
    data = data if data.endswith(".") or "\n" in data else data + "."
    return Draft(instruction=instruction, data=data, answer=answer, decoy=scene.rng.choice(wrong), wrong=wrong)


def count(scene: Scene) -> Draft:
    """Count the things on a list."""
    number = scene.rng.randrange(2, 6)
    listed = ", ".join(scene.thing() for _ in range(number))
    digits = [str(other) for other in range(1, 10) if other != number]
    return Draft(
        instruction=scene.pick(COUNT_ASKS),
        data=scene.with_fillers(scene.pick(COUNT).format(l=listed), 2),
        answer=str(number),
        decoy=str(number + 1),
        wrong=tuple(digits),
    )


def compare(scene: Scene) -> Draft:
    """Tell which of two is bigger, cheaper, older or earlier."""
    kind = scene.rng.choice(COMPARE)
    draw = scene.name if kind.people else scene.thing
    first, second = draw(), draw()
    low, high = kind.bounds
    a, b = scene.number(low, high), scene.number(low, high)
    data = scene.with_fillers(scene.pick(kind.sentences).format(x=first, y=second, a=a, b=b), 1)
    larger, smaller = (first, second) if a > b else (second, first)
    wants_larger = scene.chance(0.5)
    asks = kind.larger_asks if wants_larger else kind.smaller_asks
    answer, other = (larger, smaller) if wants_larger else (smaller, larger)
    return Draft(
        instruction=scene.pick(asks).format(x=first, y=second),
        data=data,
        answer=answer,
        decoy=other,
        wrong=(other,),
    )


def sentiment(scene: Scene) -> Draft:
    """Tell whether a review is positive or negative."""
    label, other = scene.shuffled(("positive", "negative"))
    subject = scene.thing()
    opening = scene.pick(REVIEW_OPENINGS).format(s=subject)
    cues = scene.rng.sample(list(REVIEWS[label][scene.split]), 2)
    return Draft(
        instruction=scene.pick(REVIEW_ASKS),
        data=" ".join([opening, *cues]),
        answer=label,
        decoy=other,
        wrong=(other,),
    )


def topic(scene: Scene) -> Draft:
    """Tell which of three topics a text is about."""
    label, *others = scene.rng.sample(sorted(TOPICS), 3)
    sentences = scene.rng.sample(list(TOPICS[label][scene.split]), 3)
    listed = scene.shuffled([label, *others])
    return Draft(
        instruction=scene.pick(TOPIC_ASKS).format(a=listed[0], b=listed[1], c=listed[2]),
        data=" ".join(sentences).format(n=scene.name(), d=scene.day()),
        answer=label,
        decoy=others[0],
        wrong=tuple(others),
    )


def reformat_date(scene: Scene) -> Draft:
    """Write the date of a note in digits, year first."""
    month, day, year = scene.month(), scene.rng.randrange(1, 29), scene.rng.randrange(1990, 2030)
    digits = f"{year}-{MONTHS.index(month) + 1:02d}-{day:02d}"
    text = scene.pick(DATE).format(e=scene.event(), d=f"{day} {month} {year}", p=scene.place())
    return Draft(
        instruction=scene.pick(DATE_ASKS),
        data=scene.with_fillers(text, 1),
        answer=digits,
        decoy=f"{year}-{MONTHS.index(month) + 1:02d}-{day % 28 + 1:02d}",
        match="text",
    )


def reformat_list(scene: Scene) -> Draft:
    """Write a list with another separator."""
    things = [scene.thing() for _ in range(scene.rng.choice((2, 3, 4)))]
    word, separator, asks = scene.rng.choice(JOIN_ASKS)
    text = scene.pick(COUNT).format(l=", ".join(things))
    return Draft(
        instruction=scene.pick(asks).format(k=word),
        data=scene.with_fillers(text, 2),
        answer=separator.join(things),
        decoy=separator.join(reversed(things)),
        match="text",
    )


def first_word(scene: Scene) -> Draft:
    """Copy the first word of a text."""
    data = _note(scene)
    words = data.split()
    return Draft(
        instruction=scene.pick(FIRST_WORD_ASKS),
        data=data,
        answer=words[0],
        decoy=words[1],
        wrong=(words[1],),
        positions=("middle", "end"),
    )


def first_sentence(scene: Scene) -> Draft:
    """Copy the first sentence of a text."""
    sentences = [scene.filler() for _ in range(3)]
    return Draft(
        instruction=scene.pick(FIRST_SENTENCE_ASKS),
        data=" ".join(sentences),
        answer=sentences[0],
        decoy=sentences[2],
        wrong=(sentences[1], sentences[2]),
        positions=("middle", "end"),
    )


def mention(scene: Scene) -> Draft:
    """Tell whether somebody is named in a text."""
    names = [scene.name() for _ in range(2)]
    data = _note(scene, names)
    named = scene.chance(0.5)
    asked = scene.rng.choice(names) if named else scene.name()
    answer, other = ("yes", "no") if named else ("no", "yes")
    return Draft(
        instruction=scene.pick(MENTION_ASKS).format(n=asked),
        data=data,
        answer=answer,
        decoy=other,
        wrong=(other,),
    )


def _note(scene: Scene, names: list[str] | None = None) -> str:
    """A note of three or four sentences, which tells who is to bring what if `names` are given."""
    _, drawn = _facts(scene, 2)
    sentences = [sentence for *_, sentence in drawn]
    for name in names or []:
        sentences.append(f"{name} {scene.pick(_BRINGS)} the {scene.food()}.")
    return " ".join([*scene.shuffled(sentences), scene.filler()])


_BRINGS: Wordings = {"train": ("brings", "likes"), "test": ("has", "made")}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A kind of task and its maker."""

    name: str
    make: Callable[[Scene], Draft]


TASKS = (
    Task(name="extract", make=extract),
    Task(name="look_up", make=look_up),
    Task(name="count", make=count),
    Task(name="compare", make=compare),
    Task(name="sentiment", make=sentiment),
    Task(name="topic", make=topic),
    Task(name="reformat_date", make=reformat_date),
    Task(name="reformat_list", make=reformat_list),
    Task(name="first_word", make=first_word),
    Task(name="first_sentence", make=first_sentence),
    Task(name="mention", make=mention),
)
"""Every kind of task; rows go through them in turn."""
