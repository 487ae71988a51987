"""Ten small authored databases for the SQL families: each has two parent tables and a table of events between them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

# name | parent table, singular, category column: values, number column | parent's names
#      | other table, singular, place column: values | other's names
#      | event table, singular, amount column, date column, score column, status column: values
_DATABASES = """
clinic | doctors doctor specialty: cardiology dermatology pediatrics fee | Ahlers Brandt Castro Duarte Engel Fischer
 | patients patient city: Basel Geneva Lugano | Olga Peter Quentin Rosa Silvio Tilda
 | visits visit cost visited_on rating status: planned done cancelled
library | books book genre: history novel poetry pages | Ashfall Bluebird Crossing Daybreak Embers Foxglove
 | members member town: Arden Belmont Corin | Hazel Iris Jonas Klara Luis Mona
 | loans loan fine borrowed_on renewals state: open returned lost
shop | products product category: garden kitchen toys price | Apron Bucket Candle Drill Easel Funnel
 | customers customer country: Chile Ghana Japan | Abena Benito Chiyo Daiki Efua Felipe
 | orders order_row total ordered_on stars status: paid pending refunded
school | teachers teacher subject: chemistry music physics salary | Nagel Osman Petrov Quist Rossi Sato
 | students student class: A1 B2 C3 | Alba Boris Carla Denis Elsa Fritz
 | exams exam points taken_on hours result: passed failed absent
airline | planes plane maker: Arrow Falcon Swift seats | Alba Boreal Cirrus Delta2 Echo5 Foehn
 | pilots pilot base: Cairo Dublin Milan | Vance Wirth Xenos Yilmaz Zeller Amado
 | flights flight fuel departed_on delay status: landed diverted cancelled
gym | trainers trainer sport: boxing rowing yoga rate | Aria Bodo Cleo Dario Enya Falk
 | clients client district: East Harbor North | Gwen Hugo Ines Jari Kaja Leon
 | sessions session minutes held_on effort kind: group single trial
farm | fields field crop: barley maize oats acres | Brook Cliff Dell Edge Fallow Glen
 | pickers picker village: Alm Birk Cotte | Rolf Sina Tom Ute Vera Willi
 | harvests harvest kilos picked_on grade quality: fine fair poor
cinema | films film studio: Argus Boreas Cygnus runtime | Amber Beacon Cinder Dusk Eclipse Flint
 | halls hall building: Annex Main Tower | Ruby Sapphire Topaz Opal Pearl Jade
 | screenings screening income shown_on guests format: standard wide matinee
garage | mechanics mechanic grade: junior senior master wage | Abel Bruno Conny Doris Edgar Frida
 | cars car fuel: diesel electric petrol | Aster Bolide Comet Dart Estate Fiesta2
 | repairs repair price repaired_on parts status: booked running finished
harbor | ships ship flag: Malta Norway Panama tons | Albatross Bonito Corvina Dolphin Eagle Fulmar
 | docks dock quay: north south west | D01 D02 D03 D04 D05 D06
 | calls call dues arrived_on nights cargo: fruit grain steel
"""

FIRST_EVENT = date(2026, 1, 5)
EVENTS = 24


@dataclass(frozen=True)
class Database:
    """Words of one database: p is the parent table, q the other one, e the table of events that refers to both."""

    name: str
    p: str
    p1: str
    cat: str
    cats: tuple[str, ...]
    num: str
    p_names: tuple[str, ...]
    q: str
    q1: str
    place: str
    places: tuple[str, ...]
    q_names: tuple[str, ...]
    e: str
    e1: str
    amt: str
    day: str
    score: str
    status: str
    states: tuple[str, ...]

    @property
    def columns(self) -> dict[str, str]:
        """Table -> its columns as a task states them."""
        return {
            "p": f"{self.p}(id, name, {self.cat}, {self.num})",
            "q": f"{self.q}(id, name, {self.place})",
            "e": f"{self.e}(id, {self.p1}_id, {self.q1}_id, {self.amt}, {self.day}, {self.score}, {self.status})",
        }

    def script(self) -> str:
        """CREATE and INSERT statements; the data are drawn with a fixed seed. One parent of each kind has no event."""
        rng = Random(f"{self.name} data")
        numbers = rng.sample(range(20, 400), len(self.p_names))
        parents = [
            f"({index}, '{name}', '{self.cats[index % 3]}', {number})"
            for index, (name, number) in enumerate(zip(self.p_names, numbers, strict=True), start=1)
        ]
        others = [
            f"({index}, '{name}', '{rng.choice(self.places)}')" for index, name in enumerate(self.q_names, start=1)
        ]
        events = []
        for index in range(1, EVENTS + 1):
            day = FIRST_EVENT + timedelta(days=rng.randint(0, 170))
            score = "NULL" if rng.random() < 0.2 else str(rng.randint(1, 5))
            amount = rng.randint(40, 999) / 4
            p, q = rng.randint(1, len(self.p_names) - 1), rng.randint(1, len(self.q_names) - 1)
            events.append(f"({index}, {p}, {q}, {amount}, '{day}', {score}, '{rng.choice(self.states)}')")
        return "\n".join(
            (
                f"CREATE TABLE {self.p} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, {self.cat} TEXT, {self.num} INTEGER);",
                f"CREATE TABLE {self.q} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, {self.place} TEXT);",
                f"CREATE TABLE {self.e} (id INTEGER PRIMARY KEY, {self.p1}_id INTEGER REFERENCES {self.p}(id), "
                f"{self.q1}_id INTEGER REFERENCES {self.q}(id), {self.amt} REAL, {self.day} TEXT, "
                f"{self.score} INTEGER, {self.status} TEXT);",
                f"INSERT INTO {self.p} VALUES {', '.join(parents)};",
                f"INSERT INTO {self.q} VALUES {', '.join(others)};",
                f"INSERT INTO {self.e} VALUES {', '.join(events)};",
            )
        )

    def words(self, rng: Random) -> dict[str, str]:
        """What `<<...>>` placeholders of the SQL families may name."""
        first, second = rng.sample(self.cats, 2)
        state, other_state = rng.sample(self.states, 2)
        month = rng.randint(1, 5)
        return {
            **{name: value for name, value in vars(self).items() if isinstance(value, str)},
            "db": self.name,
            "pk": f"{self.p1}_id",
            "qk": f"{self.q1}_id",
            "a": self.p[0],
            "b": self.q[0] if self.q[0] != self.p[0] else self.q[:2],
            "c": self.e[0] if self.e[0] not in (self.p[0], self.q[0]) else "ev",
            "e1": self.e1.replace("_", " "),
            "cat1": first,
            "cat2": second,
            "state1": state,
            "state2": other_state,
            "place1": rng.choice(self.places),
            "p_name": rng.choice(self.p_names[:-1]),
            "q_name": rng.choice(self.q_names[:-1]),
            "letter": rng.choice(self.p_names)[0],
            "low": str(rng.randint(30, 90)),
            "high": str(rng.randint(120, 220)),
            "many": str(rng.randint(2, 4)),
            "n": str(rng.randint(3, 6)),
            "from_day": str(date(2026, month, rng.randint(1, 28))),
            "to_day": str(date(2026, month + 1, rng.randint(1, 28))),
            "month1": f"2026-0{month}",
            "percent": str(rng.choice((5, 10, 15, 20))),
            "days": str(rng.choice((7, 14, 30))),
        }


def _named(field: str) -> tuple[str, tuple[str, ...], list[str]]:
    """`table one column: v1 v2 v3 more` -> the words before the colon, the three values, the words after them."""
    before, after = field.split(": ")
    values = after.split()
    return before, tuple(values[:3]), values[3:]


def _parse(entry: str) -> Database:
    name, parent, p_names, other, q_names, event = (part.strip() for part in entry.split("|"))
    p_words, cats, number = _named(parent)
    p, p1, cat = p_words.split()
    q_words, places, _ = _named(other)
    q, q1, place = q_words.split()
    e_words, states, _ = _named(event)
    e, e1, amt, day, score, status = e_words.split()
    return Database(
        name, p, p1, cat, cats, number[0], tuple(p_names.split()),
        q, q1, place, places, tuple(q_names.split()),
        e, e1, amt, day, score, status, states,
    )  # fmt: skip


DATABASES: tuple[Database, ...] = tuple(
    _parse(entry) for entry in _DATABASES.strip().replace("\n |", " |").splitlines()
)
