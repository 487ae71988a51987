"""What the JavaScript grammar is made of: functions in several spellings, literals and tests of a world's fields."""

from __future__ import annotations

from random import Random

from workshop.base_model.worlds import Entity, Field, World

#: What a piece of code does, the code, and a line that uses it (may be empty).
Piece = tuple[str, str, str]

LISTS = ("items", "values", "list", "numbers", "array", "data", "entries", "elements")
FUNCTION_STYLES = ("declaration", "declaration", "declaration", "arrow", "expression")
INDEX = ("i", "i", "i", "index", "k")
RESULTS = ("result", "output", "out", "acc", "answer")


def write_function(rng: Random, name: str, parameters: str, body: str, prefix: str = "") -> str:
    """A function in one of three spellings; ``body`` holds unindented lines."""
    style = rng.choice(FUNCTION_STYLES)
    lines = "\n".join(f"  {line}" if line else "" for line in body.strip("\n").splitlines())
    if style == "declaration":
        return f"{prefix}function {name}({parameters}) {{\n{lines}\n}}"
    if style == "expression":
        return f"const {name} = {prefix}function ({parameters}) {{\n{lines}\n}};"
    single = body.strip().splitlines()
    if len(single) == 1 and single[0].startswith("return ") and "{" not in single[0]:
        return f"const {name} = {prefix}({parameters}) => {single[0][len('return ') :].rstrip(';')};"
    return f"const {name} = {prefix}({parameters}) => {{\n{lines}\n}};"


def literal(rng: Random, field: Field, world: World) -> str:
    match field.kind:
        case "text":
            return f"'{rng.choice(world.names)}'"
        case "int":
            return str(rng.randint(0, 100))
        case "real":
            return f"{rng.uniform(1, 200):.{rng.choice((0, 1, 2))}f}"
        case "date":
            return f"'{rng.randint(2015, 2025)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}'"
        case "bool":
            return rng.choice(("true", "false"))
        case "choice":
            return f"'{rng.choice(field.choices)}'"


def capital(word: str) -> str:
    return word[0].upper() + word[1:]


def condition(rng: Random, field: Field, world: World, subject: str) -> tuple[str, str]:
    """A boolean expression on ``subject.field`` and how one says it."""
    said = field.name.replace("_", " ")
    match field.kind:
        case "int" | "real":
            sign, word = rng.choice(((">", "above"), ("<", "below"), (">=", "of at least")))
            bound = rng.randint(1, 100)
            return f"{subject}.{field.camel} {sign} {bound}", f"a {said} {word} {bound}"
        case "bool":
            return rng.choice(
                ((f"{subject}.{field.camel}", f"{said} set"), (f"!{subject}.{field.camel}", f"{said} not set"))
            )
        case _:
            value = literal(rng, field, world)
            return f"{subject}.{field.camel} === {value}", f"{said} {value[1:-1]}"


def pick_entity(rng: Random, world: World) -> Entity:
    return rng.choice((world.parent, world.child))


def variable_name(rng: Random, entity: Entity) -> str:
    return rng.choice((entity.name, entity.name, entity.name[0], "item"))
