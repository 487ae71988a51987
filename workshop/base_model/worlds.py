"""Everyday worlds (shops, schools, sensors, ...) whose words the generated pre-training programs speak of."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["text", "int", "real", "date", "bool", "choice"]


@dataclass(frozen=True)
class Field:
    """One attribute of an entity: ``snake_case`` name, kind, and the values a ``choice`` may take."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()

    @property
    def camel(self) -> str:
        """The name as JavaScript writes it."""
        head, *rest = self.name.split("_")
        return head + "".join(part.capitalize() for part in rest)


@dataclass(frozen=True)
class Entity:
    """A thing with fields: ``name`` is singular, ``plural`` names its collection or table."""

    name: str
    plural: str
    fields: tuple[Field, ...]

    def of_kind(self, *kinds: Kind) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.kind in kinds)


@dataclass(frozen=True)
class World:
    """A parent entity, the child entity that belongs to it, and people and places to fill them with."""

    parent: Entity
    child: Entity
    names: tuple[str, ...]
    labels: tuple[str, ...]


# parent, parents, child, children | labels of the child
_PAIRS = """
customer customers order orders | express standard pickup gift subscription
author authors book books | novel poetry essay history travel
student students enrollment enrollments | algebra biology chemistry drawing music
teacher teachers course courses | geometry physics grammar painting drama
sensor sensors reading readings | temperature humidity pressure light noise
farmer farmers harvest harvests | wheat barley maize olives grapes
garden gardens plant plants | rose tulip fern cactus basil
river rivers measurement measurements | level flow turbidity oxygen salinity
employee employees shift shifts | morning afternoon night weekend holiday
department departments employee employees | engineer analyst manager designer clerk
project projects task tasks | planning design build review release
hotel hotels booking bookings | single double suite family studio
airline airlines flight flights | regional charter cargo nonstop overnight
patient patients visit visits | checkup vaccine surgery therapy emergency
doctor doctors appointment appointments | consultation followup screening imaging lab
restaurant restaurants dish dishes | soup salad pasta curry dessert
kitchen kitchens recipe recipes | bread stew cake sauce pickle
warehouse warehouses item items | bolt hinge panel cable valve
supplier suppliers product products | lamp chair table shelf mirror
store stores sale sales | cash card voucher online phone
player players match matches | league cup friendly final playoff
team teams player players | keeper defender midfielder striker captain
artist artists album albums | jazz folk rock ambient opera
channel channels video videos | tutorial interview review concert lecture
library libraries loan loans | fiction science atlas comic dictionary
museum museums exhibit exhibits | fossil statue coin map pottery
bank banks account accounts | checking savings business joint student
account accounts transaction transactions | deposit withdrawal transfer fee refund
vehicle vehicles trip trips | commute delivery tour errand shuttle
driver drivers delivery deliveries | parcel letter pallet crate envelope
station stations train trains | local express freight sleeper tram
city cities district districts | harbor market campus suburb center
forest forests tree trees | oak pine birch maple cedar
island islands bird birds | gull heron owl finch plover
farm farms animal animals | cow goat sheep hen horse
company companies invoice invoices | hardware software service rent travel
user users post posts | news question photo guide story
post posts comment comments | praise question reply remark report
user users session sessions | web mobile tablet kiosk api
server servers request requests | get put list delete patch
device devices event events | start stop warning error heartbeat
team teams ticket tickets | bug feature question outage chore
school schools classroom classrooms | lab studio gym workshop hall
club clubs member members | junior senior guest honorary family
theater theaters show shows | comedy tragedy musical ballet puppet
zoo zoos habitat habitats | desert savanna wetland jungle tundra
mountain mountains trail trails | ridge valley summit loop canyon
lake lakes boat boats | canoe ferry sailboat raft kayak
bakery bakeries loaf loaves | rye sourdough brioche oat corn
market markets vendor vendors | fruit cheese honey flowers spices
"""

_NAMES = (
    "Ada", "Alan", "Alma", "Amir", "Anna", "Ben", "Bruno", "Carla", "Carmen", "Chen", "Clara", "Dana", "David",
    "Diego", "Elena", "Emil", "Emma", "Eva", "Farid", "Felix", "Grace", "Hana", "Hugo", "Ines", "Iris", "Ivan",
    "Jonas", "Julia", "Kenji", "Lara", "Lea", "Leo", "Lina", "Luis", "Maria", "Marta", "Max", "Mei", "Mila", "Nadia",
    "Nina", "Noah", "Nora", "Olga", "Omar", "Oscar", "Paula", "Pedro", "Petra", "Rosa", "Ruth", "Sam", "Sara",
    "Sofia", "Tariq", "Tomas", "Uma", "Vera", "Victor", "Wei", "Yara", "Yusuf", "Zoe",
)  # fmt: skip
_NUMBERS = ("price", "amount", "score", "weight", "rating", "cost", "salary", "balance", "distance", "duration",
            "height", "total", "budget", "fee", "speed", "area")  # fmt: skip
_COUNTS = ("quantity", "age", "year", "stock", "points", "level", "capacity", "views", "count", "rank", "pages",
           "visits", "size", "hours", "attempts", "position")  # fmt: skip
_TEXTS = ("title", "email", "city", "country", "phone", "address", "description", "code", "color", "region",
          "language", "owner", "comment", "label")  # fmt: skip
_DATES = ("created_at", "updated_at", "start_date", "end_date", "due_date", "birth_date", "joined_on", "closed_on")
_FLAGS = ("active", "paid", "archived", "verified", "in_stock", "completed", "published", "available")
_STATUSES = (
    ("open", "closed", "pending"),
    ("new", "active", "retired"),
    ("draft", "review", "final"),
    ("low", "medium", "high"),
    ("red", "green", "blue"),
    ("north", "south", "east", "west"),
    ("small", "medium", "large"),
    ("bronze", "silver", "gold"),
)


def _pairs() -> tuple[tuple[str, str, str, str, tuple[str, ...]], ...]:
    rows = []
    for line in _PAIRS.strip().splitlines():
        left, right = line.split("|")
        parent, parents, child, children = left.split()
        rows.append((parent, parents, child, children, tuple(right.split())))
    return tuple(rows)


PAIRS = _pairs()


def _fields(rng: Random, labels: tuple[str, ...]) -> tuple[Field, ...]:
    """A name, then one to five typed fields in random order, without repeats."""
    status = Field(rng.choice(("status", "priority", "state", "tier")), "choice", rng.choice(_STATUSES))
    label = Field(rng.choice(("category", "kind", "type", "genre", "section")), "choice", labels)
    pool = [
        Field(rng.choice(_NUMBERS), "real"),
        Field(rng.choice(_COUNTS), "int"),
        Field(rng.choice(_TEXTS), "text"),
        Field(rng.choice(_DATES), "date"),
        Field(rng.choice(_FLAGS), "bool"),
        rng.choice((status, label)),
    ]
    number, rest = pool[0], pool[1:]
    rng.shuffle(rest)
    extra = [number, *rest[: rng.randint(1, 4)]]
    rng.shuffle(extra)
    return (Field("name", "text"), *extra)


def draw_world(rng: Random) -> World:
    """Draw a world; every entity has a ``name`` and at least one ``real`` field."""
    parent, parents, child, children, labels = rng.choice(PAIRS)
    return World(
        Entity(parent, parents, _fields(rng, labels)),
        Entity(child, children, _fields(rng, labels)),
        tuple(rng.sample(_NAMES, 8)),
        labels,
    )
