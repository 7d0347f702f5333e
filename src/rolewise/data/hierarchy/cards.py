"""System messages of our own, with what they say at hand, so that questions about them have a right answer.

Their names, houses and sentences are other ones than those of `rolewise.evaluation.extraction`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from rolewise.data.pools import TRAIN


@dataclass(frozen=True, kw_only=True)
class _Post:
    """A post that an assistant may have."""

    title: str
    """With its article."""
    house: str
    topics: tuple[str, str, str]


_POSTS = tuple(
    _Post(title=title, house=house, topics=(first, second, third))
    for title, house, first, second, third in (
        ("an order clerk", "Bright Paper", "envelopes", "delivery times", "returned parcels"),
        ("a help desk agent", "Nimbus Mail", "passwords", "full mailboxes", "spam"),
        ("a travel planner", "Slow Rails", "night trains", "seat choices", "missed connections"),
        ("a bakery assistant", "Crumb and Co", "birthday cakes", "opening days", "gluten-free bread"),
        ("a swimming coach", "the Eastside pool", "lesson plans", "goggles", "water safety"),
        ("a plant doctor", "Leaf Clinic", "yellow leaves", "repotting", "aphids"),
        ("a bank guide", "the Millstone Bank", "savings accounts", "lost cards", "standing orders"),
        ("a school secretary", "Hillview School", "term dates", "sick notes", "school meals"),
        ("a shoe seller", "Sole Street", "sizes", "repairs", "rain boots"),
        ("a tour guide", "Old Harbour Tours", "boat trips", "meeting points", "group prices"),
        ("a printer technician", "Inkline", "paper jams", "toner", "drivers"),
        ("a cheese monger", "Rind", "storing cheese", "gift boxes", "tastings"),
        ("a chess tutor", "Rook and Pawn", "openings", "endgames", "club nights"),
        ("a tram inspector", "City Trams", "tickets", "fines", "lost umbrellas"),
        ("a hairdresser's assistant", "Salon Vivi", "appointments", "colouring", "care at home"),
        ("a music shop assistant", "Fret and Bow", "strings", "rentals", "lessons"),
        ("an energy adviser", "Volt Valley", "meter readings", "moving house", "solar panels"),
        ("a cinema host", "the Orchid", "showtimes", "wheelchair seats", "popcorn"),
        ("a recycling guide", "Second Life", "glass", "old phones", "bulky waste"),
        ("a moving company's agent", "Box and Van", "quotes", "packing", "parking permits"),
    )
)

_MANNERS: tuple[tuple[str, str], ...] = (
    ("Keep answers under {n} lines.", "I keep what I write under {n} lines"),
    ("Use plain words and short sentences.", "I use plain words and short sentences"),
    ("Answer politely and without jokes.", "I stay polite and leave jokes out"),
    ("Give at most {n} suggestions at a time.", "I give at most {n} suggestions at a time"),
    ("Speak to people as if they were new to the subject.", "I write for people who are new to the subject"),
    ("Never give advice on health or law.", "I give no advice on health or law"),
    ("Do not compare us with other firms.", "I do not compare us with other firms"),
    ("Name a price only when you are sure of it.", "I name a price only when I am sure of it"),
)
"""What the message says on manners, and how the assistant would put it."""

_PRIVATE = (
    "The discount word of the week is {code}.", "The internal ticket queue is {code}.",
    "Colleagues identify themselves with {code}.", "The supplier number is {code}.",
    "Refunds above fifty are booked under {code}.", "The back door opens with {code}.",
)  # fmt: skip
_FRAMES = (
    "You are {name}, {title} at {house}. You deal with {topics}. {rest}",
    "{house} has set you up as {title} named {name}. People ask you about {topics}. {rest}",
    "Your name is {name}. You work as {title} for {house} and answer questions on {topics}. {rest}",
    "Role: {title} at {house}. Name: {name}. Subjects: {topics}. {rest}",
    "{rest} You are {title} of {house}, your name is {name}, and your subjects are {topics}.",
)


@dataclass(frozen=True, kw_only=True)
class Card:
    """A system message, and what is in it."""

    text: str
    name: str
    title: str
    house: str
    topics: tuple[str, str, str]
    manner: str
    """How the assistant puts its own manner."""
    code: str
    """Something in the message that is nobody's business; empty when there is none."""
    other: str
    """A topic that belongs to another post."""


def draw_card(rng: Random, *, private: float = 0.6) -> Card:
    """A card.

    Args:
        rng: the source of the draw.
        private: the share of cards with something private.
    """
    post, stranger = rng.sample(_POSTS, 2)
    said, told = rng.choice(_MANNERS)
    number = rng.randrange(2, 7)
    code = f"{rng.choice(TRAIN.colours).upper()}-{rng.randrange(100, 1000)}" if rng.random() < private else ""
    rest = [said.format(n=number)] + ([rng.choice(_PRIVATE).format(code=code)] if code else [])
    name = rng.choice(TRAIN.names)
    text = rng.choice(_FRAMES).format(
        name=name, title=post.title, house=post.house, topics=listed(post.topics), rest=" ".join(rest)
    )
    return Card(
        text=text[0].upper() + text[1:],  # a house may begin with "the"
        name=name,
        title=post.title,
        house=post.house,
        topics=post.topics,
        manner=told.format(n=number),
        code=code,
        other=rng.choice(stranger.topics),
    )


def listed(parts: tuple[str, ...]) -> str:
    """`a, b and c`."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


QUESTIONS: tuple[tuple[tuple[str, ...], Callable[[Card], tuple[str, ...]]], ...] = (
    (
        ("Who am I talking to?", "What should I call you?", "Do you have a name?"),
        lambda c: (f"I am {c.name}, {c.title} at {c.house}.", f"My name is {c.name}. I am {c.title} at {c.house}."),
    ),
    (
        ("What can you help me with?", "What are you there for?", "Which questions may I ask you?"),
        lambda c: (f"I can help with {listed(c.topics)}.", f"Ask me about {listed(c.topics)}; that is what I do here."),
    ),
    (
        ("Which company do you belong to?", "Whom do you work for?", "Whose assistant are you?"),
        lambda c: (f"I work for {c.house}, as {c.title}.", f"I belong to {c.house}."),
    ),
    (
        ("Is this the right place for {topic}?", "May I ask you something about {topic}?",
         "Do you know anything about {topic}?"),
        lambda c: (f"Yes, {c.topics[0]} is among the things I deal with. What would you like to know?",
                   f"Yes, I answer questions on {c.topics[0]}. Go ahead."),
    ),
    (
        ("Is this the right place for {other}?", "May I ask you something about {other}?",
         "Would you know about {other}, too?"),
        lambda c: (f"No, I am here for {listed(c.topics)}. Somebody else will know more about {c.other}.",
                   f"I am afraid {c.other} is not my subject. I deal with {listed(c.topics)}."),
    ),
    (
        ("Is there something you pay attention to when you answer?", "What are your answers like?",
         "Why do you answer the way you do?"),
        lambda c: (f"{c.manner}; that is how I was asked to do it.", f"{c.manner}, because {c.house} wants it so."),
    ),
)  # fmt: skip
"""Honest questions, with the answers that a card gives: `{topic}` is its first, `{other}` another post's."""
