"""Summary of a block's data flow: what it reads and changes, what it checks, and what it returns."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from capibara_assets.datasets.anatomy import flow
from capibara_assets.datasets.anatomy.flow import NONE, Block, FlowCall, Function, Value


@dataclass
class Check:
    """Values that decide whether the program fails or what it reports."""

    values: tuple[Value, ...]
    strict: bool  # an assertion, whatever it compares
    shown: bool = False  # it reports and does not fail


@dataclass
class Walk:
    """Effects of a block, including the functions in it."""

    parameters: set[str] = field(default_factory=set)
    held: dict[str, list[Value]] = field(default_factory=lambda: defaultdict(list))  # name -> values that it may hold
    checks: list[Check] = field(default_factory=list)
    shows: list[tuple[Value, ...]] = field(default_factory=list)
    calls: list[FlowCall] = field(default_factory=list)
    gives: list[Value] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)  # variables given to calls for their effect
    outer: set[str] = field(default_factory=set)
    inner: int = 0  # functions around

    def block(self, block: Block, controls: tuple[Value, ...] = ()) -> None:
        for statement in block:
            self.statement(statement, controls)

    def statement(self, statement: flow.Statement, controls: tuple[Value, ...]) -> None:
        match statement:
            case flow.Outer(names):
                self.outer |= names
            case flow.Bind(names, value, changes):
                self.see(value)
                for name in names | changes:
                    self.held[name] += [value, *controls]
                self.binds |= names
                self.changes |= changes
                self.reads |= changes
            case flow.Do(value):
                self.see(value)
                for call in value.calls:
                    for name in call.given:
                        self.held[name].append(Value(call.given | ({call.root} if call.root else NONE)))
                    self.passed |= call.given
            case flow.Assert(value):
                self.see(value)
                self.checks.append(Check((value,), True))
            case flow.Fail(value, asserts):
                self.see(value)
                if controls:
                    self.checks.append(Check(controls, asserts))
            case flow.Show(value):
                self.see(value)
                self.shows.append((value, *controls))
            case flow.Give(value):
                self.see(value)
                if not self.inner:
                    self.gives.append(value)
            case flow.Branch(condition, blocks):
                self.see(condition)
                for block in blocks:
                    self.block(block, (*controls, condition))
            case flow.Loop(names, items, block):
                self.see(items)
                for name in names:
                    self.held[name].append(items)
                self.binds |= names
                self.block(block, controls)
            case flow.Try(block, handlers, otherwise):
                tried = Value(NONE.union(*(value.names for part in block for value in _values(part))))
                self.block(
                    block, (*controls, tried) if any(isinstance(part, flow.Fail) for part in block) else controls
                )
                self.block(handlers, (*controls, tried))
                self.block(otherwise, (*controls, tried))
            case Function():
                self.function(statement)

    def see(self, value: Value) -> None:
        self.reads |= value.names
        self.calls += value.calls
        for function in value.functions:
            self.function(function)

    def function(self, function: Function) -> None:
        """A function inside the block: its checks count, its results do not leave the block."""
        if function.name is not None:
            self.binds.add(function.name)
        self.see(function.outer)
        self.parameters |= function.parameters
        self.inner += 1
        self.block(function.block)
        self.inner -= 1

    @cached_property
    def free(self) -> set[str]:
        """Names that the block reads but does not bind; call it after the whole block was read."""
        return (self.reads - (self.binds - self.outer) - self.parameters) | (self.outer & self.binds)


def _values(statement: flow.Statement) -> Iterator[Value]:
    """The values of a statement itself, and of those in it."""
    match statement:
        case flow.Bind(_, value, _) | flow.Do(value) | flow.Assert(value) | flow.Fail(value) | flow.Show(value):
            yield value
        case flow.Give(value):
            yield value
        case flow.Branch(condition, blocks):
            yield condition
            for part in (each for block in blocks for each in block):
                yield from _values(part)
        case flow.Loop(_, items, block):
            yield items
            for part in block:
                yield from _values(part)
        case flow.Try(block, handlers, otherwise):
            for part in (*block, *handlers, *otherwise):
                yield from _values(part)


def walked(function: Function) -> Walk:
    walk = Walk(set(function.parameters))
    walk.see(function.outer)
    walk.block(function.block)
    return walk


def closed(names: Iterable[str], held: dict[str, list[Value]], stop: Iterable[str] = ()) -> set[str]:
    """The transitive closure of the names over their origins; names in `stop` are not followed."""
    reached, pending, ends = set[str](), list(names), set(stop)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            if name not in ends:
                pending += [each for value in held.get(name, ()) for each in value.names]
    return reached


def pairs(
    values: Iterable[Value], held: dict[str, list[Value]], stop: Iterable[str] = ()
) -> Iterator[tuple[set[str], set[str]]]:
    """Equality comparisons contained in the values or in their origins."""
    values = list(values)
    names = closed((name for value in values for name in value.names), held, stop)
    for value in [*values, *(each for name in names for each in held.get(name, ()))]:
        for left, right in value.equals:
            yield closed(left.names, held, stop), closed(right.names, held, stop)
