"""The small tasks that stand under rules: copy a fact, copy a list, count, add.

Asks say nothing about the form of the answer, for the form is what the rules are about. Facts about things and
events are those of `rolewise.data.wordings`.
"""

from __future__ import annotations

from rolewise.data.conflicts.kinds import Task
from rolewise.data.scenes import Scene, Wordings
from rolewise.data.wordings import COUNT, DATE, EVENT_FACTS, SHOP_FACTS, Fact

_FACTS = (*SHOP_FACTS, *EVENT_FACTS)
_SPOKEN = tuple(fact for fact in _FACTS if fact.name not in ("price", "fee", "email"))
_PRICES = tuple(fact for fact in SHOP_FACTS if fact.name == "price")


def fact(scene: Scene, facts: tuple[Fact, ...] = _FACTS, subject: str | None = None) -> Task:
    """Copy one fact; it is about `subject` if given, which the ask then names."""
    naming = {one.name: [ask for ask in one.asks[scene.split] if "{s}" in ask or subject is None] for one in facts}
    kind = scene.rng.choice([one for one in facts if naming[one.name]])
    about = subject or (scene.event() if kind in EVENT_FACTS else scene.thing())
    value, asks = kind.draw(scene), naming[kind.name]
    return Task(
        ask=scene.rng.choice(asks).format(s=about),
        material=scene.pick(kind.sentences).format(s=about, v=value),
        items=(value,),
    )


def spoken_fact(scene: Scene) -> Task:
    """Copy a fact that is a word with letters: no price, no address."""
    return fact(scene, _SPOKEN)


def price(scene: Scene) -> Task:
    """Copy a price; the answer is a number, and the sign is a matter of form."""
    task = fact(scene, _PRICES)
    return Task(ask=task.ask, material=task.material, items=(task.items[0].removeprefix("$"),), plain=task.items[0])


LIST_ASKS: Wordings = {
    "train": ("What is on the list?", "Which things are named?", "Copy the list.", "Give me the things in it.",
              "Name the things."),
    "test": ("Which objects are mentioned?", "State the objects in this note.", "What does it list?"),
}  # fmt: skip


def things(scene: Scene, count: int) -> Task:
    """Copy a list of `count` things."""
    items = [scene.thing() for _ in range(count)]
    return listed(scene, items)


def listed(scene: Scene, items: list[str]) -> Task:
    """Copy a list of things that are given."""
    return Task(ask=scene.pick(LIST_ASKS), material=scene.pick(COUNT).format(l=", ".join(items)), items=tuple(items))


COUNT_ASKS: Wordings = {
    "train": ("How many things are on the list?", "Count the things.", "How many things are named?"),
    "test": ("How many objects are mentioned?", "What is the number of objects?"),
}


def count(scene: Scene) -> Task:
    """Count the things on a list."""
    number = scene.rng.randrange(2, 6)
    task = things(scene, number)
    return Task(ask=scene.pick(COUNT_ASKS), material=task.material, items=(str(number),))


_SUM_SENTENCES: Wordings = {
    "train": ("{n} has {a} cards and gets {b} more.", "There are {a} cups in the kitchen and {b} in the {p}.",
              "{n} walked {a} miles, and {b} after that.", "{a} people came by bus and {b} on foot."),
    "test": ("{a} boats are in the bay and {b} at sea.", "{n} read {a} pages, and then {b} pages.",
             "In the {p} are {a} men and {b} women."),
}  # fmt: skip
_SUM_ASKS: Wordings = {
    "train": ("What is the sum?", "What do the two numbers make?", "Add the two numbers.", "How many in all?"),
    "test": ("How many are there together?", "Give the total.", "Sum up the figures."),
}


def addends(scene: Scene) -> tuple[str, str, int]:
    """An ask for a sum, the text with both numbers, and the sum, which is no multiple of ten."""
    while True:
        a, b = scene.rng.randrange(1, 10), scene.rng.randrange(1, 10)
        if (a + b) % 10:
            break
    sentence = scene.pick(_SUM_SENTENCES)
    name = scene.name() if "{n}" in sentence else ""
    place = scene.place() if "{p}" in sentence else ""
    return scene.pick(_SUM_ASKS), sentence.format(n=name, p=place, a=a, b=b), a + b


DATE_ASKS: Wordings = {"test": ("What is the date?", "State the date.", "Which date is named here?")}


def date(scene: Scene) -> Task:
    """Copy a date: day, month and year are the parts of the answer."""
    day, month, year = str(scene.rng.randrange(1, 29)), scene.month(), str(scene.rng.randrange(1990, 2030))
    material = scene.pick(DATE).format(e=scene.event(), d=f"{day} {month} {year}", p=scene.place())
    return Task(ask=scene.pick(DATE_ASKS), material=material, items=(day, month, year), plain=f"{day} {month} {year}")


_SCORES: Wordings = {"test": ("Scores: {l}.", "The tickets have the numbers {l}.", "We measured {l}.")}
_SCORE_ASKS: Wordings = {"test": ("Which numbers are given?", "State the numbers.", "What are the figures?")}


def numbers(scene: Scene) -> Task:
    """Copy three numbers, which stand neither upwards nor downwards."""
    low, middle, high = sorted(scene.number(10, 99) for _ in range(3))
    items = scene.rng.choice(((middle, low, high), (middle, high, low), (low, high, middle), (high, low, middle)))
    parts = tuple(str(number) for number in items)
    return Task(ask=scene.pick(_SCORE_ASKS), material=scene.pick(_SCORES).format(l=", ".join(parts)), items=parts)
