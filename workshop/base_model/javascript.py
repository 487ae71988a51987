"""A grammar that writes varied JavaScript programs (Node.js, no imports) for pre-training."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from workshop.base_model.javascript_classes import (
    collection_class,
    container_class,
    entity_class,
    inheritance,
)
from workshop.base_model.javascript_functions import small_function
from workshop.base_model.javascript_parts import (
    INDEX,
    RESULTS,
    Piece,
    capital,
    condition,
    literal,
    pick_entity,
    variable_name,
    write_function,
)
from workshop.base_model.worlds import World, draw_world

# -- arrays of objects ---------------------------------------------------------------------------------------------


def _records(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    rows = []
    for index in range(rng.randint(2, 4)):
        cells = [f"id: {index + 1}"] if rng.random() < 0.5 else []
        for field in entity.fields:
            value = f"'{world.names[index]}'" if field.name == "name" else literal(rng, field, world)
            cells.append(f"{field.camel}: {value}")
        rows.append(f"  {{ {', '.join(cells)} }},")
    body = "\n".join(rows)
    return f"Some {entity.plural}.", f"const {entity.plural} = [\n{body}\n];", f"console.log({entity.plural}.length);"


def _filter(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    variable = variable_name(rng, entity)
    field = rng.choice(entity.fields)
    test, said = condition(rng, field, world, variable)
    name = rng.choice(
        (f"filter{capital(entity.plural)}", f"find{capital(entity.plural)}", f"select{capital(entity.name)}s")
    )
    if rng.random() < 0.6:
        body = f"return {entity.plural}.filter(({variable}) => {test});"
    else:
        out = rng.choice(RESULTS)
        body = (
            f"const {out} = [];\nfor (const {variable} of {entity.plural}) {{\n  if ({test}) {{\n"
            f"    {out}.push({variable});\n  }}\n}}\nreturn {out};"
        )
    return (
        f"Keep the {entity.plural} with {said}.",
        write_function(rng, name, entity.plural, body),
        f"{name}({entity.plural})",
    )


def _total(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    variable = variable_name(rng, entity)
    field = rng.choice(entity.of_kind("real", "int"))
    what, said = rng.choice((("total", "Sum"), ("average", "Average")))
    name = f"{what}{capital(field.camel)}"
    if rng.random() < 0.5:
        start = "" if what == "total" else f"if ({entity.plural}.length === 0) {{\n  return 0;\n}}\n"
        share = "" if what == "total" else f" / {entity.plural}.length"
        body = f"{start}return {entity.plural}.reduce((sum, {variable}) => sum + {variable}.{field.camel}, 0){share};"
    else:
        end = "sum" if what == "total" else f"{entity.plural}.length ? sum / {entity.plural}.length : 0"
        body = (
            f"let sum = 0;\nfor (const {variable} of {entity.plural}) {{\n  sum += {variable}.{field.camel};\n}}\n"
            f"return {end};"
        )
    said_field = field.name.replace("_", " ")
    return (
        f"{said} of the {said_field} of all {entity.plural}.",
        write_function(rng, name, entity.plural, body),
        (f"{name}({entity.plural})"),
    )


def _group_by(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    variable = variable_name(rng, entity)
    field = rng.choice(entity.of_kind("choice", "text", "bool", "int"))
    name = f"{rng.choice(('group', 'count'))}By{capital(field.camel)}"
    out = rng.choice(("groups", "result", "acc"))
    key = f"{variable}.{field.camel}"
    form = rng.randrange(3)
    if name.startswith("count"):
        step = f"{out}[{key}] = ({out}[{key}] || 0) + 1;"
        said = f"Count the {entity.plural} per {field.name.replace('_', ' ')}."
    else:
        step = rng.choice(
            (
                f"({out}[{key}] ||= []).push({variable});",
                f"if (!{out}[{key}]) {{\n    {out}[{key}] = [];\n  }}\n  {out}[{key}].push({variable});",
            )
        )
        said = f"Group the {entity.plural} by {field.name.replace('_', ' ')}."
    if form == 0:
        body = f"return {entity.plural}.reduce(({out}, {variable}) => {{\n  {step}\n  return {out};\n}}, {{}});"
    elif form == 1:
        body = f"const {out} = {{}};\nfor (const {variable} of {entity.plural}) {{\n  {step}\n}}\nreturn {out};"
    else:
        body = f"const {out} = {{}};\n{entity.plural}.forEach(({variable}) => {{\n  {step}\n}});\nreturn {out};"
    return said, write_function(rng, name, entity.plural, body), f"{name}({entity.plural})"


def _sort(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    field = rng.choice(entity.fields)
    name = f"sortBy{capital(field.camel)}"
    copy = rng.choice((f"[...{entity.plural}]", f"{entity.plural}.slice()"))
    left, right = rng.choice((("a", "b"), ("b", "a")))
    if field.kind in ("int", "real"):
        order = f"{left}.{field.camel} - {right}.{field.camel}"
    else:
        order = f"String({left}.{field.camel}).localeCompare(String({right}.{field.camel}))"
    way = "ascending" if left == "a" else "descending"
    return (
        f"Sort {entity.plural} by {field.name.replace('_', ' ')}, {way}.",
        write_function(rng, name, entity.plural, f"return {copy}.sort((a, b) => {order});"),
        f"{name}({entity.plural})",
    )


def _describe(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    fields = rng.sample(entity.fields, min(len(entity.fields), rng.randint(1, 3)))
    shown = ", ".join(f"{field.name.replace('_', ' ')}: ${{{entity.name}.{field.camel}}}" for field in fields)
    name = rng.choice((f"describe{capital(entity.name)}", f"format{capital(entity.name)}", f"{entity.name}ToString"))
    if rng.random() < 0.5:
        return (
            f"Describe one {entity.name} as text.",
            (write_function(rng, name, entity.name, f"return `{shown}`;")),
            f"{entity.plural}.map({name})",
        )
    names = ", ".join(field.camel for field in fields)
    shown = ", ".join(f"{field.name.replace('_', ' ')}: ${{{field.camel}}}" for field in fields)
    return (
        f"Describe one {entity.name} as text.",
        (write_function(rng, name, f"{{ {names} }}", f"return `{shown}`;")),
        f"{entity.plural}.map({name})",
    )


def _extreme(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    field = rng.choice(entity.of_kind("real", "int"))
    word, sign = rng.choice((("highest", ">"), ("lowest", "<")))
    name = f"{word}{capital(field.camel)}"
    variable = rng.choice((entity.name, "candidate"))
    if rng.random() < 0.5:
        body = (
            f"let best = null;\nfor (const {variable} of {entity.plural}) {{\n"
            f"  if (best === null || {variable}.{field.camel} {sign} best.{field.camel}) {{\n    best = {variable};\n"
            "  }\n}\nreturn best;"
        )
    else:
        body = f"return {entity.plural}.reduce((a, b) => (b.{field.camel} {sign} a.{field.camel} ? b : a));"
    return (
        f"Find the {entity.name} with the {word} {field.name.replace('_', ' ')}.",
        (write_function(rng, name, entity.plural, body)),
        f"{name}({entity.plural})",
    )


def _index_by(rng: Random, world: World) -> Piece:
    parent, child = world.parent, world.child
    name = f"attach{capital(child.plural)}"
    key = f"{parent.name}Id"
    body = (
        f"const byId = new Map({parent.plural}.map(({parent.name}) => [{parent.name}.id, {parent.name}]));\n"
        f"return {child.plural}.map(({child.name}) => ({{\n  ...{child.name},\n"
        f"  {parent.name}: byId.get({child.name}.{key}){rng.choice((' ?? null', ' || null', ''))},\n}}));"
    )
    return (
        f"Join each {child.name} with its {parent.name}.",
        (write_function(rng, name, f"{parent.plural}, {child.plural}", body)),
        "",
    )


# -- errors, promises, loops ---------------------------------------------------------------------------------------


def _safe(rng: Random, world: World) -> Piece:
    error, word = rng.choice((("error", "failed"), ("err", "could not be read"), ("e", "is broken")))
    fallback = rng.choice(("null", "undefined", "{}", "[]"))
    final = " finally {\n  console.log('done');\n}" if rng.random() < 0.3 else ""
    name = rng.choice(("parseJson", "safeParse", f"read{capital(world.child.name)}", "tryParse"))
    body = (
        f"try {{\n  return JSON.parse(text);\n}} catch ({error}) {{\n"
        f"  console.{rng.choice(('error', 'log', 'warn'))}(`{word}: ${{{error}.message}}`);\n"
        f"  return {fallback};\n}}{final}"
    )
    return "Parse JSON without throwing.", write_function(rng, name, "text", body), f"{name}('{{\"a\": 1}}')"


def _validate(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    name = f"validate{capital(entity.name)}"
    lines = []
    for field in rng.sample(entity.fields, min(len(entity.fields), rng.randint(1, 3))):
        access = f"{entity.name}.{field.camel}"
        said = field.name.replace("_", " ")
        match field.kind:
            case "int" | "real":
                test, message = rng.choice(
                    (
                        (f"{access} < 0", f"{said} must not be negative"),
                        (f"typeof {access} !== 'number'", f"{said} must be a number"),
                    )
                )
                error = rng.choice(("RangeError", "Error", "TypeError"))
            case _:
                test, message, error = f"!{access}", f"{said} is required", rng.choice(("Error", "TypeError"))
        lines.append(f"if ({test}) {{\n  throw new {error}('{message}');\n}}")
    lines.append(f"return {rng.choice(('true', entity.name))};")
    use = f"try {{\n  {name}({{}});\n}} catch (error) {{\n  console.log(error.message);\n}}"
    return f"Refuse a {entity.name} that is not valid.", write_function(rng, name, entity.name, "\n".join(lines)), use


def _async(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    form = rng.randrange(5)
    delay = rng.choice((5, 10, 50, 100))
    if form == 0:
        return (
            "Wait for some milliseconds.",
            (
                "const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));\n\n"
                + write_function(
                    rng, f"load{capital(entity.plural)}", "", f"await sleep({delay});\nreturn [];", "async "
                )
            ),
            f"sleep({delay}).then(() => console.log('done'));",
        )
    if form == 1:
        name = f"fetch{capital(entity.name)}"
        body = (
            f"const response = await fetch(`/{entity.plural}/${{id}}`);\nif (!response.ok) {{\n"
            f"  throw new Error(`HTTP ${{response.status}}`);\n}}\nreturn response.json();"
        )
        return f"Fetch one {entity.name} over HTTP.", write_function(rng, name, "id", body, "async "), ""
    if form == 2:
        body = (
            "for (let attempt = 1; attempt <= times; attempt++) {\n  try {\n    return await fn();\n"
            "  } catch (error) {\n    if (attempt === times) {\n      throw error;\n    }\n  }\n}"
        )
        return (
            "Try again after a failure.",
            write_function(rng, "retry", f"fn, times = {rng.randint(2, 5)}", body, "async "),
            ("retry(async () => 1).then(console.log);"),
        )
    if form == 3:
        name = f"loadAll{capital(entity.plural)}"
        how = rng.choice(("all", "allSettled"))
        body = f"const results = await Promise.{how}(ids.map((id) => load(id)));\nreturn results;"
        return f"Load many {entity.plural} at once.", write_function(rng, name, "ids, load", body, "async "), ""
    body = (
        f"return new Promise((resolve, reject) => {{\n  setTimeout(() => {{\n    if (id > 0) {{\n"
        f"      resolve({{ id, name: '{rng.choice(world.names)}' }});\n    }} else {{\n"
        f"      reject(new Error('{entity.name} not found'));\n    }}\n  }}, {delay});\n}});"
    )
    name = f"get{capital(entity.name)}"
    use = (
        f"{name}(1)\n  .then(({entity.name}) => console.log({entity.name}.name))\n"
        "  .catch((error) => console.error(error.message));"
    )
    return f"Look up a {entity.name} later.", write_function(rng, name, "id", body), use


def _loop(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    names = ", ".join(f"'{name}'" for name in world.names[: rng.randint(2, 5)])
    var = rng.choice(("names", entity.plural, "list"))
    form = rng.randrange(6)
    i = rng.choice(INDEX)
    n = rng.randint(3, 20)
    loops = (
        f"for (let {i} = 0; {i} < {var}.length; {i}++) {{\n  console.log({i}, {var}[{i}]);\n}}",
        f"for (const name of {var}) {{\n  console.log(`Hello, ${{name}}!`);\n}}",
        f"{var}.forEach((name, {i}) => {{\n  console.log(`${{{i} + 1}}. ${{name}}`);\n}});",
        f"for (const [{i}, name] of {var}.entries()) {{\n  console.log({i}, name.length);\n}}",
        f"let {i} = {n};\nwhile ({i} > 0) {{\n  {i} -= {rng.randint(1, 3)};\n}}\nconsole.log({i}, {var}.join(', '));",
        f"const lengths = {var}.map((name) => name.length);\nconsole.log(lengths, Math.max(...lengths));",
    )
    return f"Go through the {entity.plural}.", f"const {var} = [{names}];\n{loops[form]}", ""


def _switch(rng: Random, world: World) -> Piece:
    labels = rng.sample(world.labels, 3)
    name = f"{rng.choice(('price', 'cost', 'code', 'weight'))}Of{capital(world.child.name)}"
    values = [rng.randint(1, 99) for _ in range(4)]
    if rng.random() < 0.5:
        cases = "\n".join(
            f"  case '{label}':\n    return {value};" for label, value in zip(labels, values, strict=False)
        )
        body = f"switch (kind) {{\n{cases}\n  default:\n    return {values[3]};\n}}"
    else:
        table = ", ".join(f"{label}: {value}" for label, value in zip(labels, values, strict=False))
        body = f"const table = {{ {table} }};\nreturn table[kind] ?? {values[3]};"
    return (
        f"A number for each kind of {world.child.name}.",
        write_function(rng, name, "kind", body),
        f"{name}('{labels[0]}')",
    )


_PIECES: tuple[Callable[[Random, World], Piece], ...] = (
    _records, _filter, _filter, _total, _group_by, _sort, _describe, _extreme, _index_by,
    entity_class, collection_class, inheritance, container_class,
    small_function, small_function, small_function, small_function, small_function, small_function,
    _safe, _validate, _async, _loop, _switch,
)  # fmt: skip


def _restyle(rng: Random, code: str) -> str:
    """Perhaps four spaces for two, perhaps double quotes for single ones (where that is safe)."""
    if rng.random() < 0.35:
        code = re.sub(r"^( +)(?![ *])", lambda found: found.group(1) * 2, code, flags=re.MULTILINE)
    if '"' not in code and rng.random() < 0.35:
        code = code.replace("'", '"')
    return code


def _use(rng: Random, use: str) -> str:
    if not use or use.endswith((";", "}")):
        return use
    return f"console.log({use});" if rng.random() < 0.8 else f"const {rng.choice(RESULTS)}1 = {use};"


def javascript_program(rng: Random) -> str:
    """A program of one to five pieces about one world, with or without comments and strict mode."""
    world = draw_world(rng)
    commented = rng.random()
    parts = ["'use strict';"] if rng.random() < 0.15 else []
    for _ in range(rng.randint(1, 5)):
        said, code, use = rng.choice(_PIECES)(rng, world)
        if commented < 0.5:
            code = f"// {said}\n{code}"
        elif commented < 0.7:
            code = f"/**\n * {said}\n */\n{code}"
        parts.append(code)
        if use and rng.random() < 0.6:
            parts.append(_use(rng, use))
    program = "\n\n".join(parts) + "\n"
    if commented > 0.9 and re.search(r"^(async )?function \w+", program, re.MULTILINE):
        names = re.findall(r"^(?:async )?function (\w+)", program, re.MULTILINE)
        program += f"\nmodule.exports = {{ {', '.join(dict.fromkeys(names))} }};\n"
    return _restyle(rng, program)


def javascript_exchange(rng: Random) -> tuple[str, str]:
    """A (request, answer) pair: what the code should do, and the code."""
    said, code, use = rng.choice(_PIECES)(rng, draw_world(rng))
    request = rng.choice((f"Write JavaScript. {said}", f"{said} Use JavaScript.", f"// {said}"))
    if use and rng.random() < 0.3:
        code = f"{code}\n\n{_use(rng, use)}"
    return request, _restyle(rng, code)
