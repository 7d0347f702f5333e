"""Kinds of rules that change the answer itself: sums, units, numbers, dates, order, labels."""

from __future__ import annotations

from collections.abc import Callable

from rolewise.data.conflicts.checks import Check, any_of, contains, has, in_order
from rolewise.data.conflicts.kinds import Rule, Style, Task, contest
from rolewise.data.conflicts.tasks import addends, count, date, listed, numbers, price
from rolewise.data.pools import MONTHS
from rolewise.data.scenes import Scene, Wordings
from rolewise.data.wordings import SHOP_FACTS


def _value_style(phrase: str, value: Callable[[Task], str], *spellings: Callable[[Task], str]) -> Style:
    """A style whose answer is `value(task)`, also found in other spellings; it is right by being that."""

    def holds(task: Task) -> Check:
        return any_of(*(contains(spell(task)) for spell in (value, *spellings)))

    return Style(phrase=phrase, write=value, holds=holds, right=holds)


_OFFSETS = {"train": (10, 20, 50, 100), "test": (30, 40, 70, 200)}
_OFFSET_RULES: Wordings = {
    "train": ("Add {o} to every sum.", "Every sum must be {o} higher than it is.", "To each sum you add {o}."),
    "test": ("Totals are to be increased by {o}.", "Raise each total by {o}."),
}
_OFFSET_ORDERS: Wordings = {
    "train": (
        "Add {o} to the sum, not {r}.",
        "Make the sum {o} higher instead of {r}.",
        "Here you add {o} and not {r}.",
    ),
    "test": ("Increase the total by {o}, not by {r}.", "Raise it by {o} rather than {r}."),
}


def _sum(scene: Scene) -> Task:
    ask, material, total = addends(scene)
    return Task(ask=ask, material=material, items=(str(total),))


def offset(scene: Scene) -> Rule:
    """A number that is added to every sum against another one."""

    def style(extra: int) -> Style:
        return _value_style(str(extra), lambda task: str(int(task.answer) + extra))

    styles = [style(extra) for extra in _OFFSETS[scene.split]]
    return contest(scene, rules=_OFFSET_RULES, orders=_OFFSET_ORDERS, styles=styles, task=_sum)


_UNITS = {
    "train": (("centimetres", "cm", 100), ("millimetres", "mm", 1000), ("metres", "m", 1)),
    "test": (("grams", "g", 1000), ("kilograms", "kg", 1)),
}
_MEASURES: Wordings = {
    "train": ("The {s} is {v} metres long.", "We have a {s} of {v} metres.", "The {s} measures {v} metres."),
    "test": ("The {s} has a weight of {v} kilograms.", "On the scales, the {s} showed {v} kilograms."),
}
_MEASURE_ASKS: Wordings = {
    "train": ("How long is the {s}?", "What is the length of the {s}?", "Give the length."),
    "test": ("How heavy is the {s}?", "State the weight of the {s}."),
}
_MEASURED_IN: Wordings = {"train": ("metres",), "test": ("kilograms",)}
_UNIT_RULES: Wordings = {
    "train": ("Give lengths in {o}.", "Every length is told in {o}.", "The unit is always {o}."),
    "test": ("State weights in {o}.", "Weights are to be given in {o}."),
}
_UNIT_ORDERS: Wordings = {
    "train": ("Tell it in {o}.", "I need it in {o}.", "Use {o} as the unit."),
    "test": ("Convert it to {o}.", "Express it in {o}."),
}


def _measure(scene: Scene) -> Task:
    thing, value = scene.thing(), str(scene.number(2, 9))
    return Task(
        ask=scene.pick(_MEASURE_ASKS).format(s=thing),
        material=scene.pick(_MEASURES).format(s=thing, v=value),
        items=(value,),
        plain=f"{value} {scene.pick(_MEASURED_IN)}",
    )


def units(scene: Scene) -> Rule:
    """A measure in one unit against another."""

    def style(phrase: str, short: str, factor: int) -> Style:
        def amount(task: Task) -> int:
            return int(task.answer) * factor

        return _value_style(
            phrase,
            lambda task: f"{amount(task)} {phrase}",
            lambda task: f"{amount(task)} {short}",
            lambda task: f"{amount(task)}{short}",
        )

    styles = [style(*entry) for entry in _UNITS[scene.split]]
    return contest(scene, rules=_UNIT_RULES, orders=_UNIT_ORDERS, styles=styles, task=_measure)


_NUMERALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMERAL_RULES: Wordings = {
    "train": ("Write numbers {o}.", "All numbers must be written {o}.", "Numbers are always {o}."),
    "test": ("Any figure has to be {o}.", "Figures go {o} in all replies."),
}
_NUMERAL_ORDERS: Wordings = {
    "train": ("Write the number {o}.", "Give it {o}.", "I want the number {o}."),
    "test": ("Put the figure {o}.", "State it {o}."),
}
_DIGITS: Wordings = {"train": ("in digits", "as digits"), "test": ("in numerals", "as 1, 2, 3")}
_LETTERS: Wordings = {"train": ("in words", "as words"), "test": ("in letters", "spelled out")}


def numerals(scene: Scene) -> Rule:
    """Numbers in digits against numbers in words."""
    styles = (
        _value_style(scene.pick(_DIGITS), lambda task: task.answer),
        _value_style(scene.pick(_LETTERS), lambda task: _NUMERALS[int(task.answer)]),
    )
    return contest(scene, rules=_NUMERAL_RULES, orders=_NUMERAL_ORDERS, styles=styles, task=count)


_MONEY_RULES: Wordings = {
    "train": ("Write prices with {o}.", "Every price has {o}.", "Prices always come with {o}."),
    "test": ("State amounts of money using {o}.", "Amounts carry {o}."),
}
_MONEY_ORDERS: Wordings = {
    "train": ("Write the price with {o}.", "Use {o} for the price.", "I want the price with {o}."),
    "test": ("State this amount with {o}.", "Express the amount with {o}."),
}
_MONEY: tuple[tuple[Wordings, str], ...] = (
    ({"train": ("the sign $", "a dollar sign"), "test": ("$ in front",)}, "${}"),
    ({"train": ("the word 'dollars'",), "test": ("'dollars' behind",)}, "{} dollars"),
    ({"train": ("the letters USD",), "test": ("'USD' behind",)}, "{} USD"),
)


def currency(scene: Scene) -> Rule:
    """A price with one name of the currency against another."""

    def style(phrase: str, form: str) -> Style:
        return Style(
            phrase=phrase,
            write=lambda task: form.format(task.answer),
            holds=lambda task: has(form.format(task.answer)),
        )

    styles = [style(scene.pick(phrases), form) for phrases, form in _MONEY]
    return contest(scene, rules=_MONEY_RULES, orders=_MONEY_ORDERS, styles=styles, task=price)


_DATE_RULES: Wordings = {"test": ("Dates are written {o}.", "Format any date {o}.")}
_DATE_ORDERS: Wordings = {"test": ("Write it {o}.", "Format this one {o}.")}


def _month_number(task: Task) -> int:
    return MONTHS.index(task.items[1]) + 1


def _year_first(task: Task) -> str:
    return f"{task.items[2]}-{_month_number(task):02d}-{int(task.items[0]):02d}"


def _day_first(task: Task, sign: str) -> str:
    return sign.join((f"{int(task.items[0]):02d}", f"{_month_number(task):02d}", task.items[2]))


_DATES: tuple[tuple[str, Callable[[Task], str]], ...] = (
    ("as YYYY-MM-DD", _year_first),
    ("as DD/MM/YYYY", lambda task: _day_first(task, "/")),
    ("as DD.MM.YYYY", lambda task: _day_first(task, ".")),
)


def _same_date(task: Task) -> Check:
    return any_of(*(has(write(task)) for _, write in _DATES), task.right)


def date_format(scene: Scene) -> Rule:
    """A date in one format against another."""

    def style(phrase: str, write: Callable[[Task], str]) -> Style:
        return Style(phrase=phrase, write=write, holds=lambda task: has(write(task)), right=_same_date)

    styles = [style(*entry) for entry in _DATES]
    return contest(scene, rules=_DATE_RULES, orders=_DATE_ORDERS, styles=styles, task=date)


_ROUND_RULES: Wordings = {"test": ("Round amounts {o} to tens.", "Any amount is rounded {o} to a multiple of ten.")}
_ROUND_ORDERS: Wordings = {"test": ("Round it {o} to tens.", "Take the multiple of ten that comes from rounding {o}.")}


def _uneven_price(scene: Scene) -> Task:
    while True:
        task = price(scene)
        if int(task.answer) > 10 and int(task.answer) % 10:
            return task


def rounding(scene: Scene) -> Rule:
    """Round up against round down."""
    styles = (
        _value_style("up", lambda task: str(int(task.answer) // 10 * 10 + 10)),
        _value_style("down", lambda task: str(int(task.answer) // 10 * 10)),
    )
    return contest(scene, rules=_ROUND_RULES, orders=_ROUND_ORDERS, styles=styles, task=_uneven_price)


_SORT_RULES: Wordings = {
    "train": ("Sort every list {o}.", "Lists are always {o}.", "Put things in order, {o}."),
    "test": ("Arrange all lists {o}.", "Any list must be arranged {o}."),
}
_SORT_ORDERS: Wordings = {
    "train": ("Sort the list {o}.", "Give the things {o}.", "I want them {o}."),
    "test": ("Arrange it {o}.", "State them {o}."),
}
_SORTS: tuple[tuple[Wordings, Callable[[Task], list[str]]], ...] = (
    ({"train": ("from A to Z",), "test": ("alphabetically",)}, lambda task: sorted(task.items)),
    ({"train": ("from Z to A",), "test": ("in reverse alphabetical order",)},
     lambda task: sorted(task.items, reverse=True)),
    ({"train": ("with short words first",), "test": ("by rising length of the word",)},
     lambda task: sorted(task.items, key=len)),
    ({"train": ("with long words first",), "test": ("by falling length of the word",)},
     lambda task: sorted(task.items, key=len, reverse=True)),
)  # fmt: skip


def _sort_style(phrase: str, order: Callable[[Task], list[str]]) -> Style:
    return Style(phrase=phrase, write=lambda task: ", ".join(order(task)), holds=lambda task: in_order(order(task)))


def _jumbled(scene: Scene) -> Task:
    """Three things in an order that none of the four ways to sort them gives, and no two ways agree."""
    pool = scene.pools.things
    while True:
        task = listed(scene, scene.rng.sample(pool, 3))
        orders = {tuple(order(task)) for _, order in _SORTS}
        if len({len(item) for item in task.items}) == 3 and len(orders) == len(_SORTS) and task.items not in orders:
            return task


def sort_words(scene: Scene) -> Rule:
    """Words sorted one way against another: by the alphabet or by length, up or down."""
    styles = [_sort_style(scene.pick(phrases), order) for phrases, order in _SORTS]
    return contest(scene, rules=_SORT_RULES, orders=_SORT_ORDERS, styles=styles, task=_jumbled)


_UP_RULES: Wordings = {"test": ("Numbers are put {o}.", "Rank numbers {o}.")}
_UP_ORDERS: Wordings = {"test": ("Put these {o}.", "Rank them {o}.")}


def sort_numbers(scene: Scene) -> Rule:
    """Numbers upwards against downwards."""
    styles = (
        _sort_style("from low to high", lambda task: sorted(task.items, key=int)),
        _sort_style("from high to low", lambda task: sorted(task.items, key=int, reverse=True)),
    )
    return contest(scene, rules=_UP_RULES, orders=_UP_ORDERS, styles=styles, task=numbers)


_LABELS = (("true", "false"), ("correct", "wrong"), ("aye", "nay"), ("plus", "minus"))
_LABEL_RULES: Wordings = {"test": ("Instead of yes and no, say {o}.", "The only replies are {o}.")}
_LABEL_ORDERS: Wordings = {"test": ("Reply with {o}.", "Choose between {o}.")}
_COLOUR_ASKS: Wordings = {"test": ("Is the {s} {c}?", "Would you call the {s} {c}?")}
_COLOURED: Wordings = next(fact.sentences for fact in SHOP_FACTS if fact.name == "colour")


def _yes_or_no(scene: Scene) -> Task:
    thing, colour, other = scene.thing(), scene.colour(), scene.colour()
    yes = scene.chance(0.5)
    return Task(
        ask=scene.pick(_COLOUR_ASKS).format(s=thing, c=colour if yes else other),
        material=scene.pick(_COLOURED).format(s=thing, v=colour),
        items=("yes" if yes else "no",),
    )


def labels(scene: Scene) -> Rule:
    """One pair of words for yes and no against another."""

    def style(yes: str, no: str) -> Style:
        return _value_style(f"'{yes}' or '{no}'", lambda task: yes if task.answer == "yes" else no)

    styles = [style(*pair) for pair in _LABELS]
    return contest(scene, rules=_LABEL_RULES, orders=_LABEL_ORDERS, styles=styles, task=_yes_or_no)
