"""A language-independent model of what the statements of a program do with values.

A reader of a language (`flow_python`, `flow_javascript`) gives one `Unit` per top-level statement; `roles` follows the
values from definitions to assertions. Names stand for values; what a name holds is followed without regard to order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

Names = frozenset[str]
NONE: Names = frozenset()


@dataclass(frozen=True)
class Value:
    """Data flow of an expression: what it reads and does.

    Attributes:
        names: names that it reads, in function literals too.
        calls: calls in it, also nested ones; not those in function literals.
        equals: its comparisons for equality, both sides of each.
        truths: the calls whose yes or no is its own (`f(x)`, `not f(x)`, `f(x) and g(x)`).
        functions: function literals in it.
    """

    names: Names = NONE
    calls: tuple["FlowCall", ...] = ()
    equals: tuple[tuple["Value", "Value"], ...] = ()
    truths: tuple["FlowCall", ...] = ()
    functions: tuple["Function", ...] = ()


@dataclass(frozen=True)
class FlowCall:
    """A call: the name at the root of what is called (`a` of `a.b[0].c()`), and its arguments."""

    root: str | None
    arguments: tuple[Value, ...]
    direct: bool = True  # what is called is the name itself, not something inside it

    @property
    def given(self) -> Names:
        """Names in the arguments."""
        return NONE.union(*(argument.names for argument in self.arguments))


@dataclass(frozen=True)
class Bind:
    """Names get a value, or what they hold is changed in place."""

    names: Names
    value: Value
    changes: Names = NONE


@dataclass(frozen=True)
class Do:
    """An expression evaluated for its side effect."""

    value: Value


@dataclass(frozen=True)
class Assert:
    """An assertion of the language or of a test library."""

    value: Value


@dataclass(frozen=True)
class Fail:
    """An exception is raised or the program ends; `asserts`: in a way that only tests do."""

    value: Value
    asserts: bool


@dataclass(frozen=True)
class Show:
    """Printed or displayed output."""

    value: Value


@dataclass(frozen=True)
class Give:
    """A value returned from a function."""

    value: Value


@dataclass(frozen=True)
class Branch:
    """Conditional blocks."""

    condition: Value
    blocks: tuple["Block", ...]


@dataclass(frozen=True)
class Loop:
    """A block that runs for each item of a value."""

    names: Names
    items: Value
    block: "Block"


@dataclass(frozen=True)
class Try:
    """A block, what runs when it raises, and what runs when it does not."""

    block: "Block"
    handlers: "Block"
    otherwise: "Block"


@dataclass(frozen=True)
class Function:
    """A function or class.

    Attributes:
        name: None for a function literal.
        parameters: its own, with the object of a method; of a class the object alone.
        block: its statements; of a class its methods.
        outer: what is evaluated when it is defined: decorators, defaults, bases.
        is_case: a test library finds and runs it (`unittest.TestCase`, `@given`).
    """

    name: str | None
    parameters: Names
    block: "Block"
    outer: Value = field(default_factory=Value)
    is_case: bool = False
    is_class: bool = False
    is_empty: bool = False


@dataclass(frozen=True)
class Outer:
    """Names in a function that are not its own although it binds them (`global`)."""

    names: Names


Statement = Outer | Bind | Do | Assert | Fail | Show | Give | Branch | Loop | Try | Function
Block = tuple[Statement, ...]


@dataclass(frozen=True)
class Unit:
    """A top-level statement: its place in the text (characters), and what it does."""

    start: int
    end: int
    block: Block
    imports: bool = False

    @property
    def defined(self) -> Function | None:
        """The function or class that this statement defines; None for other statements."""
        first = self.block[0] if len(self.block) == 1 else None
        return first if isinstance(first, Function) and first.name is not None else None


@dataclass(frozen=True)
class Program:
    """Top-level statements in order, with the names of test libraries and of the language's built-ins."""

    units: tuple[Unit, ...]
    libraries: Names
    given: Names


def joined(values: Iterable[Value], names: Iterable[str] = ()) -> Value:
    """Merge values into one that reads and does what all of them do."""
    parts = list(values)
    return Value(
        NONE.union(names, *(part.names for part in parts)),
        tuple(call for part in parts for call in part.calls),
        tuple(pair for part in parts for pair in part.equals),
        (),
        tuple(function for part in parts for function in part.functions),
    )
