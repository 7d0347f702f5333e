"""The kind of rule that asks for a language: answers from small tables, so that the right one is known."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from rolewise.data.conflicts.checks import Check, any_of, contains
from rolewise.data.conflicts.kinds import Rule, Style, Task, contest
from rolewise.data.pools import Split
from rolewise.data.scenes import Scene, Wordings
from rolewise.data.wordings import SHOP_FACTS

LANGUAGES = ("Spanish", "French", "German", "Italian")

_HEADER = ("English", *LANGUAGES)


def _table(text: str) -> tuple[dict[str, tuple[str, ...]], ...]:
    """One entry a line: the word in English and in each language; forms that are right as well after a bar."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.strip().splitlines()]
    assert all(len(row) == len(_HEADER) for row in rows), text
    return tuple({name: tuple(cell.split("|")) for name, cell in zip(_HEADER, row, strict=True)} for row in rows)


COLOURS: dict[Split, tuple[dict[str, tuple[str, ...]], ...]] = {
    "train": _table("""
        red, rojo|roja, rouge, rot|rote, rosso|rossa
        blue, azul, bleu|bleue, blau|blaue, blu
        green, verde, vert|verte, grün|grüne, verde
        white, blanco|blanca, blanc|blanche, weiß|weiße, bianco|bianca
        brown, marrón, marron, braun|braune, marrone
        grey, gris, gris|grise, grau|graue, grigio|grigia
    """),
    "test": _table("""
        yellow, amarillo|amarilla, jaune, gelb|gelbe, giallo|gialla
        black, negro|negra, noir|noire, schwarz|schwarze, nero|nera
        pink, rosa|rosado|rosada, rose, rosa, rosa
        purple, morado|morada, violet|violette|pourpre, lila|violett, viola
        orange, naranja|anaranjado|anaranjada, orange, orange, arancione
    """),
}
"""Words for colours."""

FOODS: dict[Split, tuple[dict[str, tuple[str, ...]], ...]] = {
    "train": _table("""
        bread, pan, pain, Brot, pane
        milk, leche, lait, Milch, latte
        cheese, queso, fromage, Käse, formaggio
        fish, pescado|pez, poisson, Fisch, pesce
        soup, sopa, soupe, Suppe, zuppa|minestra
        honey, miel, miel, Honig, miele
        rice, arroz, riz, Reis, riso
        butter, mantequilla, beurre, Butter, burro
        chicken, pollo, poulet, Huhn|Hähnchen, pollo
        tea, té, thé, Tee, tè
        salad, ensalada, salade, Salat, insalata
        coffee, café, café, Kaffee, caffè
        fruit, fruta, fruit|fruits, Obst, frutta
        juice, jugo|zumo, jus, Saft, succo
        beans, frijoles|judías, haricots, Bohnen, fagioli
    """),
    "test": _table("""
        eggs, huevos, oeufs|œufs, Eier, uova
        grapes, uvas, raisins|raisin, Trauben|Weintrauben, uva
        potatoes, patatas|papas, pommes de terre, Kartoffeln, patate
        ham, jamón, jambon, Schinken, prosciutto
        noodles, fideos, nouilles, Nudeln, tagliatelle|spaghetti|pasta
    """),
}
"""Words for food and drink."""

_RULES: Wordings = {
    "train": ("Always answer in {o}.", "Your answers are in {o}.", "You speak only {o}."),
    "test": ("Every reply has to be in {o}.", "Reply to everybody in {o}."),
}
_ORDERS: Wordings = {
    "train": ("Answer in {o}.", "Say it in {o}.", "I want the answer in {o}."),
    "test": ("Put it into {o}.", "Reply to this in {o}."),
}
_FOOD_SENTENCES: Wordings = {
    "train": ("{n} brings {w}.", "There is {w} for {n}.", "{n} asked for {w}."),
    "test": ("{n} would like {w}.", "For {n} we have {w}."),
}
_FOOD_ASKS: Wordings = {
    "train": ("What is there for {n}?", "What goes with {n}?", "Which food is named?"),
    "test": ("What has {n} got?", "State the food in this note."),
}
_COLOUR = next(fact for fact in SHOP_FACTS if fact.name == "colour")


@dataclass(frozen=True, kw_only=True)
class _Word(Task):
    """A task whose answer is a word of the tables."""

    entry: dict[str, tuple[str, ...]]


def language(scene: Scene) -> Rule:
    """An answer in one language against another. No word is drawn that the two, or English, share."""

    def style(name: str) -> Style:
        def holds(task: Task) -> Check:
            assert isinstance(task, _Word)
            return any_of(*(contains(form) for form in task.entry[name]))

        def write(task: Task) -> str:
            assert isinstance(task, _Word)
            return task.entry[name][0]

        return Style(phrase=name, write=write, holds=holds, right=holds)

    chosen = scene.rng.sample(LANGUAGES, 2)

    def task(scene: Scene) -> Task:
        coloured = scene.chance(0.5)
        table = (COLOURS if coloured else FOODS)[scene.split]
        entry = scene.rng.choice([one for one in table if _apart(one, ("English", *chosen))])
        word = entry["English"][0]
        if coloured:
            thing = scene.thing()
            ask = scene.pick(_COLOUR.asks).format(s=thing)
            return _Word(
                ask=ask, material=scene.pick(_COLOUR.sentences).format(s=thing, v=word), items=(word,), entry=entry
            )
        name = scene.name()
        ask = scene.pick(_FOOD_ASKS).format(n=name)
        return _Word(ask=ask, material=scene.pick(_FOOD_SENTENCES).format(n=name, w=word), items=(word,), entry=entry)

    return contest(scene, rules=_RULES, orders=_ORDERS, styles=[style(name) for name in chosen], task=task)


def _apart(entry: dict[str, tuple[str, ...]], names: tuple[str, ...]) -> bool:
    """Whether the languages' words differ by more than accents, which a small model may leave out."""
    forms = [_without_accents(form) for name in names for form in entry[name]]
    return len(set(forms)) == len(forms)


def _without_accents(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(char))
