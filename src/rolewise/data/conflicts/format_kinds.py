"""Kinds of rules about the form of the answer: letters, JSON, lists, tags, separators, lengths."""

from __future__ import annotations

import json

from rolewise.data.conflicts.checks import (
    Check,
    any_of,
    apart,
    bullets,
    contains,
    includes,
    joined,
    json_object,
    lower,
    names_of,
    none_of,
    numbered,
    sentence_count,
    times,
    together,
    upper,
    word_count,
    wrapped,
)
from rolewise.data.conflicts.kinds import Rule, Style, Task, against, contest
from rolewise.data.conflicts.tasks import fact, spoken_fact, things
from rolewise.data.scenes import Scene, Wordings

_CASE_RULES: Wordings = {
    "train": ("Always answer in {o}.", "All your answers are in {o}.", "Only {o} are allowed."),
    "test": ("Each reply must be in {o}.", "Replies are to be {o} throughout."),
}
_CASE_ORDERS: Wordings = {
    "train": ("Write the answer in {o}.", "Use {o}.", "Please use only {o} here."),
    "test": ("Put it in {o}.", "I want {o} in the reply."),
}
_UPPER: Wordings = {"train": ("capital letters", "capitals"), "test": ("upper case", "block letters")}
_LOWER: Wordings = {"train": ("small letters", "little letters"), "test": ("lower case", "letters without capitals")}


def case(scene: Scene) -> Rule:
    """All capitals against no capitals."""
    styles = (
        Style(phrase=scene.pick(_UPPER), write=lambda task: task.answer.upper(), holds=lambda _: upper()),
        Style(phrase=scene.pick(_LOWER), write=lambda task: task.answer.lower(), holds=lambda _: lower()),
    )
    return contest(scene, rules=_CASE_RULES, orders=_CASE_ORDERS, styles=styles, task=spoken_fact)


_KEYS: Wordings = {"train": ("answer", "result", "value", "fact"), "test": ("output", "response", "content")}
_JSON_RULES: Wordings = {
    "train": ('Answer with a JSON object whose key is "{o}".', 'All answers are JSON with the key "{o}".',
              'Put your answers into JSON under "{o}".'),
    "test": ('Reply as a JSON object with the one key "{o}".', 'Your output is JSON: the key is "{o}".'),
}  # fmt: skip
_JSON_ORDERS: Wordings = {
    "train": ('Make JSON with the key "{o}".', 'The JSON key is "{o}".', 'Use JSON with "{o}" as the key.'),
    "test": ('Return JSON under the key "{o}".', 'Name the JSON key "{o}".'),
}


def json_key(scene: Scene) -> Rule:
    """A JSON object with one key against another key."""

    def style(key: str) -> Style:
        return Style(
            phrase=key,
            write=lambda task: json.dumps({key: task.answer}, ensure_ascii=False),
            holds=lambda _: json_object(key),
        )

    styles = [style(key) for key in _KEYS[scene.split]]
    return contest(scene, rules=_JSON_RULES, orders=_JSON_ORDERS, styles=styles, task=fact)


_MARK_RULES: Wordings = {
    "train": ("Write lists with {o}.", "Every answer is a list with {o}.", "Always use {o}."),
    "test": ("Format each reply with {o}.", "Replies need {o}."),
}
_MARK_ORDERS: Wordings = {
    "train": ("Make it a list with {o}.", "Use {o} for the list.", "Please write it with {o}."),
    "test": ("Give the list {o}.", "I need {o} in the list."),
}
_BULLETS: Wordings = {"train": ("bullet points", "a dash before each thing"), "test": ("bullets", "hyphens in front")}
_NUMBERS: Wordings = {
    "train": ("numbered lines", "a number before each thing"),
    "test": ("numbering", "a running number"),
}


def list_marks(scene: Scene) -> Rule:
    """Bullets against numbers before the lines."""
    styles = (
        Style(
            phrase=scene.pick(_BULLETS),
            write=lambda task: "\n".join(f"- {item}" for item in task.items),
            holds=lambda task: bullets(task.items),
        ),
        Style(
            phrase=scene.pick(_NUMBERS),
            write=lambda task: "\n".join(f"{n}. {item}" for n, item in enumerate(task.items, start=1)),
            holds=lambda task: numbered(task.items),
        ),
    )
    return contest(scene, rules=_MARK_RULES, orders=_MARK_ORDERS, styles=styles, task=_two_or_three)


def _two_or_three(scene: Scene) -> Task:
    return things(scene, scene.rng.choice((2, 3)))


_LINE_RULES: Wordings = {
    "train": ("Always write lists {o}.", "Lists go {o}.", "Put what you list {o}."),
    "test": ("Any list has to be {o}.", "Lay out lists {o}."),
}
_LINE_ORDERS: Wordings = {
    "train": ("Write the list {o}.", "Put the things {o}.", "I want them {o}."),
    "test": ("Set it out {o}.", "Print the objects {o}."),
}
_APART: Wordings = {"train": ("line by line", "one thing a line"), "test": ("with a line break after each object",)}
_TOGETHER: Wordings = {"train": ("on one line", "in a single line"), "test": ("without any line break",)}


def lines(scene: Scene) -> Rule:
    """One thing a line against all on one line."""
    styles = (
        Style(
            phrase=scene.pick(_APART),
            write=lambda task: "\n".join(task.items),
            holds=lambda task: apart(task.items),
        ),
        Style(
            phrase=scene.pick(_TOGETHER),
            write=lambda task: ", ".join(task.items),
            holds=lambda task: together(task.items),
        ),
    )
    return contest(scene, rules=_LINE_RULES, orders=_LINE_ORDERS, styles=styles, task=_two_or_three)


_SEPARATOR_RULES: Wordings = {
    "train": ("Put {o} between the things of a list.", "Separate things by {o}.", "In lists, use {o}."),
    "test": ("Any list is divided by {o}.", "Between objects write {o}."),
}
_SEPARATOR_ORDERS: Wordings = {
    "train": ("Use {o} between them.", "Write {o} between the things here.", "Separate them by {o}."),
    "test": ("Divide them by {o}.", "I want {o} in between."),
}
_SEPARATORS = {
    "train": (("slashes", " / "), ("the word 'and'", " and "), ("semicolons", "; ")),
    "test": (("plus signs", " + "), ("vertical bars", " | "), ("the word 'then'", " then ")),
}


def separator(scene: Scene) -> Rule:
    """One separator between the things of a list against another one."""

    def style(phrase: str, by: str) -> Style:
        return Style(
            phrase=phrase, write=lambda task: by.join(task.items), holds=lambda task: joined(task.items, by.strip())
        )

    styles = [style(*entry) for entry in _SEPARATORS[scene.split]]
    return contest(scene, rules=_SEPARATOR_RULES, orders=_SEPARATOR_ORDERS, styles=styles, task=_two_or_three)


_NO_COMMA_RULES: Wordings = {"test": ("Never write a comma.", "Commas are forbidden: say 'and'.", "Do without commas.")}
_NO_COMMA_ORDERS: Wordings = {"test": ("Put a comma between the objects.", "Use commas, not 'and'.")}


def no_commas(scene: Scene) -> Rule:
    """No commas at all, against commas between things."""
    ours = Style(
        phrase="no commas", write=lambda task: " and ".join(task.items), holds=lambda _: none_of(includes(","))
    )
    theirs = Style(phrase="commas", write=lambda task: task.answer, holds=lambda task: joined(task.items, ","))
    text, order = scene.pick(_NO_COMMA_RULES), scene.pick(_NO_COMMA_ORDERS)
    return against(text, order, ours=ours, theirs=theirs, task=_two_or_three)


_TAGS: Wordings = {"test": ("box", "note", "final", "core")}
_TAG_RULES: Wordings = {"test": ("Wrap each reply in <{o}> and </{o}>.", "Replies stand between <{o}> and </{o}>.")}
_TAG_ORDERS: Wordings = {"test": ("Put it between <{o}> and </{o}>.", "Enclose it in <{o}> ... </{o}>.")}


def tag(scene: Scene) -> Rule:
    """The answer inside one tag against another tag."""

    def style(name: str) -> Style:
        return Style(phrase=name, write=lambda task: f"<{name}>{task.answer}</{name}>", holds=lambda _: wrapped(name))

    styles = [style(name) for name in _TAGS[scene.split]]
    return contest(scene, rules=_TAG_RULES, orders=_TAG_ORDERS, styles=styles, task=fact)


_REPEAT_RULES: Wordings = {"test": ("Say each answer {o}.", "Answers are to be given {o}.")}
_REPEAT_ORDERS: Wordings = {"test": ("Write it {o}.", "Print the answer {o}.")}


def repeat(scene: Scene) -> Rule:
    """The answer said twice against three or four times."""

    def style(phrase: str, count: int) -> Style:
        return Style(
            phrase=phrase,
            write=lambda task: ", ".join([task.answer] * count),
            holds=lambda task: times(task.answer, count),
        )

    styles = (style("twice", 2), style("three times", 3), style("four times", 4))
    return contest(scene, rules=_REPEAT_RULES, orders=_REPEAT_ORDERS, styles=styles, task=fact)


_MANY_RULES: Wordings = {
    "train": ("Never list more or less than {o}.", "Always name exactly {o}.", "Lists have {o} in them, no more."),
    "test": ("Each reply lists {o} and no other number.", "Mention {o}, however long the list is."),
}
_MANY_ORDERS: Wordings = {
    "train": ("Name exactly {o}.", "Give me {o} from the list.", "List {o}."),
    "test": ("I want {o} mentioned.", "State {o} only."),
}
_MANY = {
    "train": (("one thing", 1), ("two things", 2), ("three things", 3)),
    "test": (("a single object", 1), ("two objects", 2), ("three objects", 3)),
}


def _four(scene: Scene) -> Task:
    return things(scene, 4)


def _some_item(task: Task) -> Check:
    return any_of(*(contains(item) for item in task.items))


def how_many(scene: Scene) -> Rule:
    """So many things of a list against another number of them."""

    def style(phrase: str, count: int) -> Style:
        return Style(
            phrase=phrase,
            write=lambda task: ", ".join(task.items[:count]),
            holds=lambda task: names_of(task.items, count),
            right=_some_item,
        )

    styles = [style(*entry) for entry in _MANY[scene.split]]
    return contest(scene, rules=_MANY_RULES, orders=_MANY_ORDERS, styles=styles, task=_four)


_WORDS_RULES: Wordings = {"test": ("Replies have exactly {o}.", "Use {o} in each reply, not more or fewer.")}
_WORDS_ORDERS: Wordings = {"test": ("Reply in exactly {o}.", "Make it {o} long.")}


def words(scene: Scene) -> Rule:
    """An answer of so many words against another number of words."""

    def style(phrase: str, count: int) -> Style:
        return Style(
            phrase=phrase,
            write=lambda task: " ".join(task.items[:count]),
            holds=lambda _: word_count(count),
            right=_some_item,
        )

    styles = (style("one word", 1), style("two words", 2), style("three words", 3))
    return contest(scene, rules=_WORDS_RULES, orders=_WORDS_ORDERS, styles=styles, task=_four)


_SENTENCE_RULES: Wordings = {
    "train": ("Always answer in {o}.", "Answers have {o}.", "Stop after {o}."),
    "test": ("Each reply consists of {o}.", "Limit replies to {o}."),
}
_SENTENCE_ORDERS: Wordings = {
    "train": ("Give me {o}.", "Write {o}.", "Answer with {o}."),
    "test": ("Quote {o}.", "Reply with {o}."),
}
_SENTENCES = {
    "train": (("exactly one sentence", 1), ("exactly two sentences", 2)),
    "test": (("a single sentence", 1), ("a pair of sentences", 2)),
}
_NOTE_ASKS: Wordings = {
    "train": ("What does the note say?", "Read me the note.", "How does the text begin?"),
    "test": ("What is written here?", "State what the text says."),
}


def _note(scene: Scene) -> Task:
    sentences = tuple(scene.filler() for _ in range(3))
    note = " ".join(sentences)
    return Task(ask=scene.pick(_NOTE_ASKS), material=note, items=sentences, plain=note, order_may_lead=False)


def sentences(scene: Scene) -> Rule:
    """One sentence of a note against two."""

    def style(phrase: str, count: int) -> Style:
        return Style(
            phrase=phrase,
            write=lambda task: " ".join(task.items[:count]),
            holds=lambda _: sentence_count(count),
            right=lambda task: contains(task.items[0]),
        )

    styles = [style(*entry) for entry in _SENTENCES[scene.split]]
    return contest(scene, rules=_SENTENCE_RULES, orders=_SENTENCE_ORDERS, styles=styles, task=_note)
