"""Classes of the JavaScript grammar: entities, collections, inheritance and small containers."""

from __future__ import annotations

from random import Random

from workshop.base_model.javascript_parts import (
    RESULTS,
    Piece,
    capital,
    condition,
    literal,
    pick_entity,
)
from workshop.base_model.worlds import World


def entity_class(rng: Random, world: World) -> Piece:
    entity = pick_entity(rng, world)
    title = capital(entity.name)
    fields = entity.fields
    number = rng.choice(entity.of_kind("real", "int"))
    parameters = ", ".join(field.camel for field in fields)
    assigns = "\n".join(f"    this.{field.camel} = {field.camel};" for field in fields)
    test, said = condition(rng, rng.choice(fields), world, "this")
    verb, sign = rng.choice((("increase", "+"), ("decrease", "-"), ("scale", "*")))
    copied = ", ".join(f"object.{field.camel}" for field in fields)
    methods = [
        f"  toString() {{\n    return `{title}(${{this.name}}, ${{this.{number.camel}}})`;\n  }}",
        f"  {rng.choice(('isSelected', 'matches', 'check', 'isReady'))}() {{\n    return {test};\n  }}",
        f"  {verb}{capital(number.camel)}(amount) {{\n    this.{number.camel} {sign}= amount;\n    return this;\n  }}",
        f"  get {rng.choice(('label', 'summary', 'title2', 'caption'))}() {{\n"
        "    return this.name.toUpperCase();\n  }",
        f"  static from(object) {{\n    return new {title}({copied});\n  }}",
        "  toJSON() {\n    return { ...this };\n  }",
    ]
    chosen = rng.sample(methods, rng.randint(1, 4))
    body = "\n\n".join([f"  constructor({parameters}) {{\n{assigns}\n  }}", *chosen])
    values = ", ".join(literal(rng, field, world) for field in fields)
    return f"A {entity.name} that knows {said}.", f"class {title} {{\n{body}\n}}", f"String(new {title}({values}))"


def collection_class(rng: Random, world: World) -> Piece:
    parent, child = world.parent, world.child
    title, kept, one = capital(parent.name), child.plural, child.name
    number = rng.choice(child.of_kind("real", "int"))
    private = rng.random() < 0.3
    store = f"this.#{kept}" if private else f"this.{kept}"
    head = f"  #{kept} = [];\n\n" if private else ""
    start = "" if private else f"    this.{kept} = [];\n"
    methods = [
        f"  add({one}) {{\n    {store}.push({one});\n    return this;\n  }}",
        f"  remove(name) {{\n    {store} = {store}.filter(({one}) => {one}.name !== name);\n  }}",
        f"  total() {{\n    return {store}.reduce((sum, {one}) => sum + {one}.{number.camel}, 0);\n  }}",
        f"  find(name) {{\n    return {store}.find(({one}) => {one}.name === name);\n  }}",
        f"  get size() {{\n    return {store}.length;\n  }}",
        f"  *[Symbol.iterator]() {{\n    yield* {store};\n  }}",
    ]
    body = "\n\n".join([methods[0], *rng.sample(methods[1:], rng.randint(1, 4))])
    code = f"class {title} {{\n{head}  constructor(name) {{\n    this.name = name;\n{start}  }}\n\n{body}\n}}"
    return f"A {parent.name} keeps its {kept}.", code, f"new {title}('{rng.choice(world.names)}')"


def inheritance(rng: Random, world: World) -> Piece:
    base = capital(pick_entity(rng, world).name)
    kinds = rng.sample(world.labels, 2)
    verb = rng.choice(("describe", "label", "greet", "report"))
    classes = "\n\n".join(
        f"class {capital(kind)}{base} extends {base} {{\n  constructor(name, extra) {{\n    super(name);\n"
        f"    this.extra = extra;\n  }}\n\n  {verb}() {{\n    return `${{super.{verb}()}} ({kind}: ${{this.extra}})`;\n"
        "  }\n}"
        for kind in kinds
    )
    code = (
        f"class {base} {{\n  constructor(name) {{\n    this.name = name;\n  }}\n\n  {verb}() {{\n"
        f"    return `I am ${{this.name}}`;\n  }}\n}}\n\n{classes}"
    )
    return (
        f"Kinds of {base.lower()} by inheritance.",
        code,
        (f"new {capital(kinds[0])}{base}('{rng.choice(world.names)}', {rng.randint(1, 9)}).{verb}()"),
    )


# @items, @result and the numbers @start, @step, @limit are to draw; a class ends where the next one begins.
_CONTAINERS = r"""
class Stack {
  constructor() {
    this.@items = [];
  }

  push(value) {
    this.@items.push(value);
  }

  pop() {
    if (this.isEmpty()) {
      throw new Error('stack is empty');
    }
    return this.@items.pop();
  }

  peek() {
    return this.@items[this.@items.length - 1];
  }

  isEmpty() {
    return this.@items.length === 0;
  }
}
==
class Queue {
  constructor() {
    this.@items = [];
  }

  enqueue(value) {
    this.@items.push(value);
  }

  dequeue() {
    return this.@items.shift();
  }

  get length() {
    return this.@items.length;
  }
}
==
class Counter {
  constructor(start = @start) {
    this.count = start;
  }

  increment(step = @step) {
    this.count += step;
    return this.count;
  }

  reset() {
    this.count = 0;
  }
}
==
class Node {
  constructor(value, next = null) {
    this.value = value;
    this.next = next;
  }
}

class LinkedList {
  constructor() {
    this.head = null;
    this.size = 0;
  }

  prepend(value) {
    this.head = new Node(value, this.head);
    this.size++;
  }

  toArray() {
    const @result = [];
    let node = this.head;
    while (node) {
      @result.push(node.value);
      node = node.next;
    }
    return @result;
  }
}
==
class EventEmitter {
  constructor() {
    this.listeners = {};
  }

  on(event, listener) {
    (this.listeners[event] ||= []).push(listener);
  }

  emit(event, ...args) {
    for (const listener of this.listeners[event] || []) {
      listener(...args);
    }
  }
}
==
class Cache {
  constructor(limit = @limit) {
    this.limit = limit;
    this.map = new Map();
  }

  get(key) {
    if (!this.map.has(key)) {
      return undefined;
    }
    const value = this.map.get(key);
    this.map.delete(key);
    this.map.set(key, value);
    return value;
  }

  set(key, value) {
    this.map.delete(key);
    this.map.set(key, value);
    if (this.map.size > this.limit) {
      this.map.delete(this.map.keys().next().value);
    }
  }
}
"""
_KINDS = ("Stack", "Queue", "Counter", "LinkedList", "EventEmitter", "Cache")
_CONTAINER_OF = dict(zip(_KINDS, _CONTAINERS.strip().split("\n==\n"), strict=True))


def container_class(rng: Random, world: World) -> Piece:
    """A well-known container, such as a stack; it does not speak of the world."""
    kind = rng.choice(_KINDS)
    drawn = {
        "@items": rng.choice(("items", "elements", "data", "values")),
        "@start": rng.randint(0, 5),
        "@step": rng.randint(1, 5),
        "@result": rng.choice(RESULTS[:3]),
        "@limit": rng.randint(2, 50),
    }
    code = _CONTAINER_OF[kind]
    for hole, drawing in drawn.items():
        code = code.replace(hole, str(drawing))
    return f"A small {kind} class.", code, f"new {kind}()"
