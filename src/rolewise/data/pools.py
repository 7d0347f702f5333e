"""The words that generated texts are made of: our own lists, split between training and tests.

Names, things, places and sentences of the two splits share nothing. What is closed by nature (days, months,
numbers) is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "test"]

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


@dataclass(frozen=True, kw_only=True)
class Pools:
    """The open word lists of one split."""

    names: tuple[str, ...]
    things: tuple[str, ...]
    """Singular nouns that take "the" and "a" or "an"; things one buys."""
    foods: tuple[str, ...]
    """What somebody can bring or eat."""
    places: tuple[str, ...]
    """Places that take "the"."""
    events: tuple[str, ...]
    """Events that take "the"."""
    hosts: tuple[str, ...]
    """The part of an e-mail address after the at sign."""
    colours: tuple[str, ...]
    fillers: tuple[str, ...]
    """Sentences without any fact that a question asks for; some are requests between people."""


TRAIN = Pools(
    names=_split(
        "Anna, Ben, Clara, David, Emma, Frank, Grace, Henry, Irene, Jack, Karen, Leo, Maria, Nick, Olivia, Paul, "
        "Rosa, Sam, Tina, Victor, Wendy, Adam, Bella, Carl, Diana, Eric, Fiona, George, Helen, Ivan, Julia, Kevin, "
        "Laura, Mark, Nora, Oscar, Peter, Rachel, Simon, Teresa, Alan, Betty, Chris, Dora, Edward, Flora, Gary, "
        "Hannah, Isaac, Jane, Kurt, Lily, Max, Nina, Otto, Pamela, Robert, Sarah, Tom, Vera"
    ),
    things=_split(
        "lamp, chair, table, kettle, bicycle, radio, jacket, camera, mirror, blanket, clock, basket, guitar, tent, "
        "carpet, bench, drill, pillow, vase, printer, helmet, scarf, ladder, suitcase, toaster, piano, shelf, "
        "sofa, coat, wallet, tray, fan, bucket, candle, curtain, hammer, notebook, phone, puzzle, stove"
    ),
    foods=_split(
        "soup, bread, salad, cheese, rice, cake, fish, pasta, juice, fruit, chicken, butter, tea, jam, pie, milk, "
        "corn, beans, honey, coffee"
    ),
    places=_split(
        "town hall, library, school, garden, station, museum, church, park, office, harbour, market, gym, hotel, "
        "theatre, café, old mill, boathouse, post office, sports ground, cinema"
    ),
    events=_split(
        "meeting, concert, workshop, party, lecture, picnic, auction, dinner, rehearsal, race, course, exhibition, "
        "training, wedding, tour"
    ),
    hosts=_split("mail.com, post.org, office.net, shop.com, club.org, school.edu, city.gov, home.net"),
    colours=_split("red, blue, green, white, brown, grey"),
    fillers=(
        "The weather was mild all week.",
        "Everybody is looking forward to it.",
        "Please wear warm clothes.",
        "There is a bus every half hour.",
        "We had a long talk about it.",
        "Nobody was late this time.",
        "Bring an umbrella if it looks like rain.",
        "The windows were open all afternoon.",
        "It was quiet after lunch.",
        "Thanks to all who helped.",
        "The old plan was too long.",
        "A dog slept beside the door.",
        "Let us know if you have questions.",
        "The street is closed for repairs.",
        "Most of us walked home.",
        "There was a good smell from the kitchen.",
        "Keep the door shut, please.",
        "The neighbours came over as well.",
        "It took longer than we thought.",
        "The lights went out for a minute.",
    ),
)

TEST = Pools(
    names=_split(
        "Agnes, Bruno, Celia, Dennis, Edith, Felix, Greta, Hugo, Iris, Jonas, Kate, Lucas, Martha, Nathan, Olga, "
        "Philip, Ruth, Stella, Theo, Ursula, Vincent, Walter, Yvonne, Albert, Bridget, Colin, Daisy, Ernest, "
        "Frida, Gordon, Heidi, Ian, Judith, Keith, Linda, Miles, Norman, Patrick, Rita, Stanley"
    ),
    things=_split(
        "desk, violin, rug, oven, watch, hat, stool, tripod, cushion, heater, telescope, backpack, drum, fridge, "
        "wardrobe, kite, saw, umbrella, teapot, bookcase, scooter, ring, bottle, mattress, keyboard"
    ),
    foods=_split("pizza, stew, yoghurt, potatoes, ham, cookies, lemonade, eggs, noodles, grapes, omelette, waffles"),
    places=_split(
        "castle, bakery, airport, zoo, bank, hospital, stadium, barn, chapel, swimming pool, bookshop, lighthouse"
    ),
    events=_split("interview, festival, parade, reunion, seminar, game, rally, ceremony, debate, fair"),
    hosts=_split("letters.com, studio.net, farm.org, travel.com, music.net, works.org"),
    colours=_split("yellow, black, pink, purple, orange"),
    fillers=(
        "The path through the woods is dry again.",
        "All of the seats have been cleaned.",
        "Please leave your shoes at the entrance.",
        "Some of us arrived by train.",
        "It had been planned for months.",
        "Take the second door on the left.",
        "A light wind came up in the evening.",
        "The children drew pictures.",
        "Nothing else has changed since then.",
        "Many thanks for your patience.",
        "The parking area is small.",
        "There were fewer people than last year.",
        "Do not forget to lock the gate.",
        "We could hear the river from there.",
        "The cat would not move.",
    ),
)

POOLS: dict[Split, Pools] = {"train": TRAIN, "test": TEST}
