"""The everyday things that the fleet's tasks speak of: words for fields, groups and names, and data made of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

# thing things | label field: five labels | group field: three values | two numeric fields
_THINGS = """
dish dishes | name: Soup Stew Curry Salad Pie | kitchen: north south garden | price calories
book books | title: Atlas Harbor Winter Lantern Orchard | shelf: fiction science travel | pages copies
ticket tickets | code: T10 T22 T31 T47 T58 | status: open closed waiting | priority hours
player players | name: Ana Bruno Chen Dora Emil | team: red blue green | score assists
room rooms | name: Alpine Birch Coral Delta Ember | floor: first second third | seats screens
parcel parcels | code: P1 P2 P3 P4 P5 | city: Lima Oslo Porto | weight postage
song songs | title: Drift Ember Halo Monsoon Velvet | genre: jazz folk rock | seconds plays
sensor sensors | name: s1 s2 s3 s4 s5 | zone: attic cellar roof | reading battery
worker workers | name: Gil Hana Ivo Jun Kira | crew: day night relief | wage shifts
plant plants | name: basil fern cactus tulip mint | bed: sunny shaded wet | height leaves
trip trips | name: Coast Desert Forest Lake Ridge | vehicle: bus train ferry | distance stops
order orders | code: A7 B3 C9 D1 E4 | channel: web shop phone | total items
student students | name: Lea Milo Nora Otis Pia | course: algebra biology music | grade absences
invoice invoices | code: I01 I02 I03 I04 I05 | client: Acme Borealis Cobalt | amount days
recipe recipes | title: Bread Chili Dumpling Eclair Frittata | cuisine: baltic andean nordic | minutes servings
movie movies | title: Comet Dynamo Eclipse Fjord Gazelle | studio: Apex Beacon Crest | rating runtime
boat boats | name: Gull Heron Ibis Jay Kite | harbor: east west inner | length crew_size
animal animals | name: Rex Suki Toto Uma Vito | species: dog cat goat | age weight
house houses | code: H1 H2 H3 H4 H5 | street: Elm Oak Pine | rent rooms
server servers | name: ares boreas ceres dione eos | region: eu us asia | load uptime
flight flights | code: F12 F27 F33 F48 F59 | airline: Aurora Breeze Condor | delay seats
meal meals | name: breakfast brunch lunch dinner supper | diet: vegan halal plain | cost protein
bike bikes | code: K1 K2 K3 K4 K5 | station: dock park mill | range rides
garden gardens | name: Aster Bloom Clover Dahlia Edelweiss | district: hill river old | area trees
machine machines | name: drill lathe mixer press saw | hall: a b c | output faults
lesson lessons | title: chords essays fractions maps verbs | level: basic middle advanced | minutes credits
market markets | name: Amber Bazaar Canal Depot Exchange | season: spring summer autumn | stalls visitors
phone phones | name: Aero Bolt Clip Dash Echo | brand: Nimbus Orbit Pulse | price storage
river rivers | name: Ala Bura Cerna Drava Elba | country: north inland coast | length depth
hotel hotels | name: Astoria Bellevue Carlton Dorado Eden | stars: three four five | rate beds
article articles | title: Budget Climate Design Energy Finance | section: local world sport | words views
coin coins | name: crown ducat florin guilder thaler | metal: gold silver copper | weight year
museum museums | name: Argo Bastion Citadel Dome Emporium | topic: art history nature | visitors rooms
project projects | name: Atlas Beacon Cascade Drift Ember | phase: plan build review | budget weeks
tree trees | name: ash birch cedar elm fir | park: north central lake | height age
delivery deliveries | code: D3 D6 D9 D12 D15 | driver: Ada Ben Cleo | distance boxes
camera cameras | name: axis bolex canon dacora exakta | mount: wide tele macro | price pixels
bottle bottles | name: cider juice syrup tonic vinegar | cellar: left right back | volume price
patient patients | name: Abel Bea Cira Dov Elin | ward: east west child | pulse nights
vote votes | name: Adler Baum Cruz Dahl Eng | region: coast plain valley | ballots spoiled
course courses | title: Drawing Ethics French Geology Hygiene | term: autumn winter spring | credits seats
car cars | name: Astra Baleno Corsa Duster Ember | fuel: petrol diesel electric | price mileage
farm farms | name: Aldea Bravo Campo Dehesa Encina | crop: wheat maize olives | acres yield_tons
task tasks | title: deploy inspect paint repair survey | owner: Ines Jorge Karim | hours points
comet comets | name: Arend Biela Crommelin Donati Encke | class_name: short long great | period magnitude
shop shops | name: Anchor Bodega Corner Deli Emporium | mall: plaza arcade strip | sales clerks
train trains | code: R1 R2 R3 R4 R5 | line: coastal express local | delay wagons
badge badges | name: archer baker climber diver explorer | color: bronze silver gold | points holders
league leagues | name: Alpha Bravo Charlie Delta Echo | sport: rowing chess judo | clubs matches
donor donors | name: Amos Blanca Cyril Dina Esther | blood: zero alpha beta | donations age
cheese cheeses | name: brie cheddar edam feta gouda | milk: cow goat sheep | months price
bridge bridges | name: Arch Bow Chain Draw Eads | material: steel stone timber | span lanes
island islands | name: Amrum Borkum Corfu Djerba Elba | sea: north aegean tyrrhenian | area people
meter meters | code: M1 M2 M3 M4 M5 | kind: water gas heat | usage price
poem poems | title: Ashes Borders Candles Dusk Echoes | poet: Ruiz Sand Tolk | lines likes
robot robots | name: arlo beta cog dex eva | model: walker lifter welder | load errors
stamp stamps | name: eagle lion ship tower wheel | country: Malta Nepal Oman | price year
tea teas | name: assam bancha ceylon dianhong earl | origin: india china japan | grams minutes
mission missions | name: Apollo Borealis Calypso Daedalus Echo | target: moon mars venus | crew_size days
tournament tournaments | name: Autumn Brass Copper Diamond Easter | city: Bern Cork Delft | players prize
"""

_SENTENCES = """
the quick brown fox jumps over the lazy dog
a rolling stone gathers no moss but a rolling wheel gathers miles
every good map shows the river and the road to the river
small boats stay near the shore and big boats sail far
rain in the morning and sun in the evening make a good garden
the old clock in the hall strikes one and the new clock strikes two
many hands make light work and many cooks spoil the broth
she sells fresh bread at the market and fresh fish at the harbor
time and tide wait for no one and no one waits for time
red apples green apples and yellow pears fill the red basket
the train leaves at noon and the bus leaves after the train
read the question twice then answer the question once
"""


@dataclass(frozen=True)
class Thing:
    """One kind of record: its words in singular and plural, its fields, and values for them."""

    thing: str
    things: str
    label: str
    labels: tuple[str, ...]
    group: str
    groups: tuple[str, ...]
    number: str
    amount: str

    def rows(self, rng: Random, count: int = 5) -> list[dict[str, Any]]:
        """`count` (at most 5) records; each group value but perhaps the last one is there at least once."""
        groups = [self.groups[index % 2] if index < 3 else rng.choice(self.groups) for index in range(count)]
        return [
            {self.label: label, self.group: group, self.number: rng.randint(2, 60), self.amount: rng.randint(1, 12)}
            for label, group in zip(rng.sample(self.labels, count), groups, strict=True)
        ]


def _parse(line: str) -> Thing:
    words, labels, groups, numbers = (part.strip() for part in line.split("|"))
    thing, things = words.split()
    label, values = labels.split(": ")
    group, group_values = groups.split(": ")
    number, amount = numbers.split()
    return Thing(thing, things, label, tuple(values.split()), group, tuple(group_values.split()), number, amount)


THINGS: tuple[Thing, ...] = tuple(_parse(line) for line in _THINGS.strip().splitlines())
SENTENCES: tuple[str, ...] = tuple(_SENTENCES.strip().splitlines())


def camel(name: str) -> str:
    """`crew_size` as JavaScript writes it: `crewSize`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def python_literal(value: Any) -> str:
    """`value` as Python source with double-quoted strings (repr for everything that is no plain container)."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return "{" + ", ".join(f"{python_literal(k)}: {python_literal(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(python_literal, value)) + "]"
        case tuple() if type(value) is tuple:
            return "(" + ", ".join(map(python_literal, value)) + ("," if len(value) == 1 else "") + ")"
        case _:
            return repr(value)


def javascript_literal(value: Any) -> str:
    """Numbers, strings, lists and records as JavaScript source."""
    match value:
        case str():
            return python_literal(value)
        case dict():
            return "{ " + ", ".join(f"{camel(key)}: {javascript_literal(item)}" for key, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(javascript_literal, value)) + "]"
        case _:
            return repr(value)


def words_of(thing: Thing, rng: Random, *, javascript: bool = False) -> dict[str, str]:
    """What `<<...>>` placeholders may name: the thing's words, a few records, and lists, words and numbers at random."""
    literal = javascript_literal if javascript else python_literal
    field = camel if javascript else str
    ints = [[rng.randint(1, 30) for _ in range(rng.randint(5, 7))] for _ in range(3)]
    one, two = rng.sample(SENTENCES, 2)
    labels = list(thing.labels)
    return {
        "thing": thing.thing,
        "things": thing.things,
        "Thing": thing.thing.capitalize(),
        "Things": thing.things.capitalize(),
        "label": field(thing.label),
        "Label": field(thing.label).capitalize(),
        "group": field(thing.group),
        "Group": field(thing.group).capitalize(),
        "number": field(thing.number),
        "Number": field(thing.number)[0].upper() + field(thing.number)[1:],
        "amount": field(thing.amount),
        "Amount": field(thing.amount)[0].upper() + field(thing.amount)[1:],
        "number_words": thing.number.replace("_", " "),
        "amount_words": thing.amount.replace("_", " "),
        "group_words": thing.group.replace("_", " "),
        "rows": literal(thing.rows(rng)),
        "rows3": literal(thing.rows(rng, 3)),
        "labels": literal(labels),
        "labels3": literal(rng.sample(labels, 3)),
        "groups": literal(list(thing.groups)),
        **{f"n{index}": literal(label) for index, label in enumerate(rng.sample(labels, 5), start=1)},
        **{f"g{index}": literal(value) for index, value in enumerate(thing.groups, start=1)},
        "ints1": literal(ints[0]),
        "ints2": literal(ints[1]),
        "ints3": literal(ints[2]),
        "sentence1": literal(one),
        "sentence2": literal(two),
        "k": str(rng.randint(2, 5)),
        "i": str(rng.randint(3, 12)),
        "j": str(rng.randint(13, 40)),
        "big": str(rng.randint(100, 900)),
        "year": str(rng.randint(2019, 2026)),
        "month": str(rng.randint(1, 12)),
        "day": str(rng.randint(1, 28)),
    }
