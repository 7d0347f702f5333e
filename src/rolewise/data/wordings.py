"""The sentences and the instructions of the generated tasks, apart for training and tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rolewise.data.pools import Split
from rolewise.data.scenes import Scene, Wordings


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Something that a note says about its subject {s}: how {v} is drawn, told and asked for."""

    name: str
    draw: Callable[[Scene], str]
    sentences: Wordings
    asks: Wordings


SHOP_FACTS = (
    Fact(
        name="price",
        draw=Scene.price,
        sentences={
            "train": ("The {s} costs {v}.", "The price of the {s} is {v}.", "They want {v} for the {s}."),
            "test": ("You can buy the {s} for {v}.", "The bill for the {s} came to {v}."),
        },
        asks={
            "train": ("How much does the {s} cost?", "What is the price of the {s}?", "Give the price.",
                      "Tell me how much they ask for the {s}."),
            "test": ("What must be paid for the {s}?", "State the price in this note."),
        },
    ),
    Fact(
        name="colour",
        draw=Scene.colour,
        sentences={
            "train": ("The {s} is {v}.", "It is a {v} {s}.", "We chose the {s} in {v}."),
            "test": ("The {s} was painted {v}.", "They had one {v} {s} left."),
        },
        asks={
            "train": ("What colour is the {s}?", "Give the colour of the {s}.", "Which colour does it have?"),
            "test": ("In which colour does the {s} come?", "State the colour of the {s}."),
        },
    ),
    Fact(
        name="buyer",
        draw=Scene.name,
        sentences={
            "train": ("{v} ordered the {s}.", "The {s} is for {v}.", "{v} paid for the {s} last week."),
            "test": ("The {s} now belongs to {v}.", "{v} bought the {s} as a present."),
        },
        asks={
            "train": ("Who ordered the {s}?", "Whose {s} is it?", "Name the person who gets the {s}."),
            "test": ("Which customer is this about?", "Who is the owner of the {s}?"),
        },
    ),
    Fact(
        name="delivery",
        draw=Scene.day,
        sentences={
            "train": ("The {s} arrives on {v}.", "A driver brings the {s} on {v}.", "The {s} will be sent on {v}."),
            "test": ("We can deliver the {s} by {v}.", "Expect the {s} this {v}."),
        },
        asks={
            "train": ("On which day does the {s} arrive?", "When will the {s} come?", "Give the day of delivery."),
            "test": ("Which weekday is named here?", "State the day for the {s}."),
        },
    ),
)  # fmt: skip

EVENT_FACTS = (
    Fact(
        name="place",
        draw=Scene.place,
        sentences={
            "train": ("The {s} takes place at the {v}.", "The {s} is in the {v}.", "Come to the {v} for the {s}."),
            "test": ("The {s} will be held at the {v}.", "We meet for the {s} by the {v}."),
        },
        asks={
            "train": ("Where is the {s}?", "Give the place of the {s}.", "Where does it take place?"),
            "test": ("At which location is the {s}?", "State the venue of the {s}."),
        },
    ),
    Fact(
        name="day",
        draw=Scene.day,
        sentences={
            "train": ("The {s} is on {v}.", "Join us for the {s} on {v}.", "The {s} has moved to {v}."),
            "test": ("The {s} was set for {v}.", "This {v} is the {s}."),
        },
        asks={
            "train": ("On which day is the {s}?", "When is the {s}?", "Give the day of the {s}."),
            "test": ("Which weekday is the {s}?", "State the day of the {s}."),
        },
    ),
    Fact(
        name="leader",
        draw=Scene.name,
        sentences={
            "train": ("{v} leads the {s}.", "{v} is in charge of the {s}.", "The {s} was planned by {v}."),
            "test": ("The host of the {s} is {v}.", "{v} organises the {s}."),
        },
        asks={
            "train": ("Who leads the {s}?", "Who is in charge?", "Name the person behind the {s}."),
            "test": ("Which person runs the {s}?", "Who is responsible for the {s}?"),
        },
    ),
    Fact(
        name="email",
        draw=Scene.email,
        sentences={
            "train": ("Write to {v} to join the {s}.", "Send questions about the {s} to {v}."),
            "test": ("Sign up for the {s} at {v}.", "The contact for the {s} is {v}."),
        },
        asks={
            "train": ("What is the e-mail address?", "Give the e-mail address.", "Copy the e-mail address."),
            "test": ("Which e-mail address is mentioned?", "State the contact address for the {s}."),
        },
    ),
    Fact(
        name="fee",
        draw=Scene.price,
        sentences={
            "train": ("A ticket for the {s} costs {v}.", "The {s} costs {v} a person."),
            "test": ("Entry to the {s} is {v}.", "You pay {v} for the {s}."),
        },
        asks={
            "train": ("How much is a ticket?", "What does the {s} cost?", "Give the price of the {s}."),
            "test": ("What is the entry fee?", "State the price of the {s}."),
        },
    ),
)

# A table: what comes first, one line of it, and what stands between lines.
LOOKUP: dict[Split, tuple[tuple[str, str, str], ...]] = {
    "train": (
        ("Who brings what:\n", "{f}: {n}", "\n"),
        ("Plan for the evening: ", "{n} brings the {f}", ", "),
        ("", "{n} makes the {f}.", " "),
        ("Our list. ", "{f} - {n}", "; "),
        ("Kitchen duty:\n", "- {n}: {f}", "\n"),
    ),
    "test": (
        ("Shared lunch\n", "{n} = {f}", "\n"),
        ("The following was agreed: ", "{f} from {n}", ", "),
        ("", "The {f} comes from {n}.", " "),
        ("For Sunday: ", "{n} ({f})", ", "),
    ),
}
LOOKUP_NAME_ASKS: Wordings = {
    "train": ("Who brings the {f}?", "Who has the {f}?", "Give the name next to {f}.", "Find the person for {f}.",
              "Tell me who takes care of the {f}."),
    "test": ("Which person goes with {f}?", "Who is down for the {f}?", "Say who provides the {f}."),
}  # fmt: skip
LOOKUP_FOOD_ASKS: Wordings = {
    "train": ("What does {n} bring?", "What is next to {n}?", "Find what {n} takes care of."),
    "test": ("Which food goes with {n}?", "What is {n} down for?"),
}

COUNT: Wordings = {
    "train": (
        "Still to pack: {l}.", "On the van we have: {l}.", "We bought these: {l}.", "For sale: {l}.",
        "In the room: {l}.", "They asked for: {l}.",
    ),
    "test": ("The following were found: {l}.", "To be repaired: {l}.", "Left in the attic: {l}."),
}  # fmt: skip
COUNT_ASKS: Wordings = {
    "train": (
        "How many things are on the list? Give a number.", "Count the things on the list.",
        "Give the number of things in the list.", "How many items are listed? Use digits.",
    ),
    "test": ("State in digits how many items the list has.", "What number of things do you see? Use digits."),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A quantity in which {x} and {y} differ: {a} belongs to {x}, {b} to {y}."""

    people: bool
    bounds: tuple[int, int]
    sentences: Wordings
    larger_asks: Wordings
    smaller_asks: Wordings


COMPARE = (
    Comparison(
        people=False,
        bounds=(5, 99),
        sentences={
            "train": ("The {x} costs ${a} and the {y} costs ${b}.", "They ask ${a} for the {x}. The {y} is ${b}."),
            "test": ("The {x} was sold for ${a}, the {y} for ${b}.", "Prices: {x} ${a}, {y} ${b}."),
        },
        larger_asks={
            "train": ("Which costs more, the {x} or the {y}?", "Which is the more expensive one?"),
            "test": ("Name the one with the higher price.", "Which of the two has the higher price?"),
        },
        smaller_asks={
            "train": ("Which costs less, the {x} or the {y}?", "Which is cheaper?"),
            "test": ("Name the one with the lower price.", "Which of the two has the lower price?"),
        },
    ),
    Comparison(
        people=True,
        bounds=(8, 90),
        sentences={
            "train": ("{x} is {a} years old and {y} is {b}.", "{x} is {a}. {y} turned {b} in spring."),
            "test": ("{x}, aged {a}, came with {y}, aged {b}.", "{x} has just turned {a}, while {y} is {b}."),
        },
        larger_asks={
            "train": ("Who is older, {x} or {y}?", "Who is the older one?"),
            "test": ("Name the older person.", "Which of the two has lived longer?"),
        },
        smaller_asks={
            "train": ("Who is younger, {x} or {y}?", "Who is the younger one?"),
            "test": ("Name the younger person.", "Which of the two was born later?"),
        },
    ),
)

REVIEW_OPENINGS: Wordings = {
    "train": ("We have had the {s} for a month.", "I bought this {s} in May.", "My review of the {s}.",
              "The {s} came on time."),
    "test": ("A few words about the {s}.", "I was given this {s} by my aunt.", "This is our second {s}."),
}  # fmt: skip
REVIEWS: dict[str, Wordings] = {
    "positive": {
        "train": (
            "I love it.", "It works very well.", "Everybody is happy with it.", "It is worth every cent.",
            "I would buy it again.", "It looks beautiful.", "The quality is great.", "It is a joy to use.",
        ),
        "test": (
            "It is excellent.", "We are delighted.", "I can only recommend it.", "It is the best we ever had.",
            "It does its job perfectly.",
        ),
    },
    "negative": {
        "train": (
            "I hate it.", "It broke at once.", "Everybody is unhappy with it.", "It is a waste of money.",
            "I would not buy it again.", "It looks ugly.", "The quality is poor.", "It is a pain to use.",
        ),
        "test": (
            "It is terrible.", "We are disappointed.", "I cannot recommend it.", "It is the worst we ever had.",
            "It failed on the first day.",
        ),
    },
}  # fmt: skip
REVIEW_ASKS: Wordings = {
    "train": ("Is this review positive or negative?", "Say whether the review is positive or negative.",
              "Positive or negative?", "Does the buyer sound positive or negative?"),
    "test": ("Label the review as positive or negative.", "Is the tone here positive or negative?"),
}  # fmt: skip

TOPICS: dict[str, Wordings] = {
    "sport": {
        "train": ("The team won by two goals.", "{n} ran the last mile very fast.", "The match on {d} went to a draw.",
                  "The coach changed the players at half time.", "Fans cheered when the ball went in."),
        "test": ("{n} scored in the final minute.", "The referee blew the whistle.", "On {d} the league begins again.",
                 "The goalkeeper saved a penalty."),
    },
    "food": {
        "train": ("{n} fried the onions in butter.", "The sauce needs more salt.", "On {d} the chef made a new dish.",
                  "The cake must bake for an hour.", "We ate two plates each."),
        "test": ("Stir the dough until it is smooth.", "{n} tasted the gravy.", "The menu for {d} has three desserts.",
                 "The garlic was roasted slowly."),
    },
    "weather": {
        "train": ("Heavy rain is expected on {d}.", "A cold wind blows from the north.", "{n} saw dark clouds at noon.",
                  "Snow fell during the night.", "The sun came out after the storm."),
        "test": ("Fog covered the hills until noon.", "On {d} it will freeze.", "{n} heard thunder far away.",
                 "The drought ended with showers."),
    },
    "music": {
        "train": ("{n} sang the last song twice.", "The band plays again on {d}.", "The violins were too loud.",
                  "A slow tune came from the piano.", "The choir has a new singer."),
        "test": ("The orchestra tuned up slowly.", "{n} wrote a melody for flute.", "On {d} the album comes out.",
                 "The drummer kept a steady beat."),
    },
}  # fmt: skip
TOPIC_ASKS: Wordings = {
    "train": ("Is the text about {a}, {b} or {c}?", "Which topic fits: {a}, {b} or {c}?",
              "Choose the topic: {a}, {b} or {c}."),
    "test": ("Label the text with one of {a}, {b}, {c}.", "What is the subject here, {a}, {b} or {c}?"),
}  # fmt: skip

DATE: Wordings = {
    "train": ("The {e} was on {d}.", "The {e} at the {p} began on {d}.", "On {d} we had the {e}."),
    "test": ("{d} is the date of the {e}.", "They held the {e} in the {p} on {d}."),
}
DATE_ASKS: Wordings = {
    "train": ("Write the date as YYYY-MM-DD.", "Give the date in the form YYYY-MM-DD.",
              "What is the date? Use YYYY-MM-DD."),
    "test": ("State the date in this note in YYYY-MM-DD format.", "Convert the date to YYYY-MM-DD."),
}  # fmt: skip

_JOIN: Wordings = {
    "train": ("Write the list with {k} between the things.", "List the things with {k} between them.",
              "Separate the listed things by {k}."),
    "test": ("Give the list with {k} instead of commas.", "Put {k} between the listed things."),
}  # fmt: skip
JOIN_ASKS: tuple[tuple[str, str, Wordings], ...] = (
    ("slashes", " / ", _JOIN),
    ("semicolons", "; ", _JOIN),
    ("plus signs", " + ", _JOIN),
)

FIRST_WORD_ASKS: Wordings = {
    "train": ("What is the first word of the text?", "Copy the first word.", "Give the first word of this note."),
    "test": ("With which word does the text begin?", "State the word that comes first."),
}
FIRST_SENTENCE_ASKS: Wordings = {
    "train": ("Copy the first sentence.", "Give the first sentence of the text.", "What does the first sentence say?"),
    "test": ("Quote the opening sentence.", "State the sentence that comes first."),
}
MENTION_ASKS: Wordings = {
    "train": ("Is {n} mentioned? Answer yes or no.", "Does the text mention {n}, yes or no?",
              "Does the name {n} occur? Say yes or no."),
    "test": ("Yes or no: is {n} named in this text?", "Is there a person called {n}? Reply yes or no."),
}  # fmt: skip

ASIDES: Wordings = {
    "train": ("Thanks.", "I am in a hurry.", "I need this for work.", "Hello!", "It is for a friend.",
              "I have no time to read it.", "Here is a text for you.", "This came in today."),
    "test": ("Many thanks!", "I could not read it all.", "A colleague sent me this.", "Good morning."),
}  # fmt: skip
"""What a user says besides the instruction, so that the length of a user turn tells nothing."""
