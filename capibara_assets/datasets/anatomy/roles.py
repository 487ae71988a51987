"""The role of each top-level statement of a program, from the data flow between definitions and assertions.

What is asked for are the definitions whose results are judged. What judges them (an assertion, an error or an output
that hangs on the comparison of such a result with another value) is a test, and so is all that only tests need: their
data, other names of the definition, functions that compare or run cases, imports. Names decide nothing: `check(n)` is
what was asked for where its result is judged, and a test where it judges the result of another.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property

from capibara_assets.datasets.anatomy import flow
from capibara_assets.datasets.anatomy.flow import FlowCall, Program, Value
from capibara_assets.datasets.anatomy.flow_walk import Check, Walk, closed, pairs, walked


class Role(Enum):
    """The role of a statement in its program."""

    SOLUTION = "what was asked for, and what that needs"
    TEST = "judges it, or is needed for that alone"
    DEMONSTRATION = "shows what it does"


class _Cell:
    """The statements of a program and what is known of them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.defined = {f.name: f for unit in program.units if (f := unit.defined) is not None and f.name is not None}
        self.walks: list[Walk] = []
        self._origins: dict[str, set[str]] = {}
        self.held: dict[str, list[Value]] = defaultdict(list)  # of top-level statements that define nothing
        for unit in program.units:
            if (function := unit.defined) is not None:
                self.walks.append(walked(function))
            else:
                walk = Walk(held=self.held)
                walk.block(unit.block)
                self.walks.append(walk)
        bound = {name for walk in self.walks for name in walk.binds}
        for name in self.held.keys() - bound:  # a name of the language or of the session holds what it held before
            del self.held[name]
        self.of = {
            f.name: walk for unit, walk in zip(program.units, self.walks, strict=True) if (f := unit.defined) and f.name
        }

    @cached_property
    def statements(self) -> list[int]:
        """Positions of the statements that define no function or class."""
        return [i for i, unit in enumerate(self.program.units) if unit.defined is None]

    def origin(self, names: Iterable[str]) -> set[str]:
        """The definitions that values under these names came from."""
        origins: set[str] = set()
        for name in names:
            if name not in self._origins:
                self._origins[name] = closed([name], self.held, self.defined) & self.defined.keys()
            origins |= self._origins[name]
        return origins

    # --- which definitions test others --------------------------------------------------------------------------------

    @cached_property
    def testers(self) -> set[str]:
        """Definitions that call others, or their arguments, and judge the results."""
        return {name for name in self.defined if self._tests(name)}

    def _tests(self, name: str) -> bool:
        function, walk = self.defined[name], self.of[name]
        if function.is_case:
            return True
        called = {call.root for call in walk.calls if call.direct} & walk.parameters
        subjects = (self.defined.keys() - {name}) | called
        data = walk.parameters - called
        own = {each: values for each, values in walk.held.items() if each in walk.binds | walk.parameters}
        for value in walk.gives:
            if not value.equals and not value.truths and closed(value.names, own) & subjects:
                return False

        def judged(left: set[str], right: set[str]) -> bool:
            if not left & subjects or right & subjects:
                return False
            return not left & right & data and (not left & data or bool(right & data))

        for check in [*walk.checks, *self._reports(walk, own)]:
            names = closed((n for value in check.values for n in value.names), own)
            if names & subjects and check.strict and not names & data:
                return True
            if any(judged(a, b) or judged(b, a) for a, b in pairs(check.values, own)):
                return True
        return False

    def _reports(self, walk: Walk, held: dict[str, list[Value]]) -> list[Check]:
        """The outputs that hang on a comparison, where a block shows nothing else."""
        reports = [Check(values, False, True) for values in walk.shows if any(pairs(values, held, self.defined))]
        return reports if walk.shows and len(reports) == len(walk.shows) else []

    # --- which definitions serve the tests ----------------------------------------------------------------------------

    @cached_property
    def harness(self) -> set[str]:
        """Definitions that judge or compare their arguments and only ever receive results of others."""
        judging: set[str] = set()
        while True:
            places = [self.walks[i] for i in self.statements]
            places += [self.of[name] for name in self.testers | judging]
            others = self.defined.keys() - self.testers - judging
            more = {name for name in others if self._serves(name, places, others)}
            if not more:
                return judging
            judging |= more

    def _serves(self, name: str, places: Sequence[Walk], others: Iterable[str]) -> bool:
        if any(
            name in self.of[other].free for other in others if other != name and self.of[name].free.isdisjoint({other})
        ):
            return False
        uses = [(walk, call) for walk in places for call in walk.calls if call.root and name in self._behind(call.root)]
        decorated = [f for f in self.testers if name in self.defined[f].outer.names]
        if not uses:
            return bool(decorated)
        if not all(self._is_given_results(name, walk, call) for walk, call in uses):
            return False
        walk = self.of[name]
        held = {each: values for each, values in walk.held.items() if each in walk.binds}
        for check in walk.checks:
            names = closed((n for value in check.values for n in value.names), held)
            if check.strict and names & walk.parameters:
                return True
            if any(
                a & walk.parameters and b & walk.parameters and not a & b & walk.parameters
                for a, b in pairs(check.values, held)
            ):
                return True
        compared = any(any(argument.equals for argument in call.arguments) for _, call in uses)
        shown = {n for values in walk.shows for value in values for n in closed(value.names, held)}
        failing = {n for check in walk.checks for value in check.values for n in closed(value.names, held)}
        if compared and (shown | failing) & walk.parameters:
            return True
        if not walk.gives and {call.root for call in walk.calls} & walk.parameters:
            return any(self._runs_checks(call) for _, call in uses)
        return self._is_asked_yes_or_no(name, places)

    def _behind(self, root: str) -> set[str]:
        return {root} if root in self.defined else self.origin({root})

    def _is_given_results(self, name: str, walk: Walk, call: FlowCall) -> bool:
        given = closed(call.given, walk.held if walk.parameters else self.held, self.defined)
        called = {each.root for each in walk.calls if each.direct} & walk.parameters
        return bool(given & ((self.defined.keys() - {name}) | called)) or self._runs_checks(call)

    def _runs_checks(self, call: FlowCall) -> bool:
        """Whether a function with checks in it is given to a call."""
        for argument in call.arguments:
            if argument.names & self.testers:
                return True
            for function in argument.functions:
                inner = walked(function)
                if inner.checks or any(self._runs_checks(each) for each in inner.calls):
                    return True
        return False

    def _is_asked_yes_or_no(self, name: str, places: Sequence[Walk]) -> bool:
        """Whether each use asks if a result is like another value."""
        asked = [
            call
            for walk in places
            for check in walk.checks
            for value in [
                *check.values,
                *(held for n in check.values for m in n.names for held in walk.held.get(m, ())),
            ]
            for call in value.truths
            if call.root and name in self._behind(call.root)
        ]
        return bool(asked) and all(
            len(call.arguments) > 1 and any(not self.origin(a.names) - {name} for a in call.arguments) for call in asked
        )

    # --- what is asked for --------------------------------------------------------------------------------------------

    @cached_property
    def subjects(self) -> set[str]:
        """Definitions whose results are judged or shown, and their dependencies."""
        rest = self.defined.keys() - self.testers - self.harness - self.fixtures
        served = self._reached(self.harness)
        made = {
            name
            for i in self.statements
            for call in self.walks[i].calls
            if call.root is not None
            for name in self._behind(call.root)
            if not self._is_given_results(name, self.walks[i], call)
        }
        asked = {name for name in rest if name not in served or name in made}
        asked = (self._reached(asked) & self.defined.keys()) - self.testers
        return asked or set(rest) or self.defined.keys() - self.testers or set(self.defined)

    @cached_property
    def fixtures(self) -> set[str]:
        """Definitions that only tests pass to others: defined after these, or among the tests."""
        units, libraries = self.program.units, self.program.libraries
        order = [f.name for unit in units if (f := unit.defined) and f.name]
        walks = [self.walks[i] for i in self.statements]
        read = {name for each in self.defined.keys() - self.testers for name in self.of[each].free}
        called = {call.root for walk in walks for call in walk.calls}
        takers: dict[str, set[str]] = defaultdict(set)
        for call in (call for walk in walks for call in walk.calls if call.root in self.defined):
            for name in self.origin(call.given) - {call.root}:
                takers[name].add(str(call.root))
        begins = [
            i
            for i in self.statements
            if any(check.strict for check in self.walks[i].checks) or self.walks[i].binds & libraries
        ]
        late = {
            f.name
            for unit in units[min(begins, default=len(units)) :]
            if (f := unit.defined) and f.name and not f.parameters
        }
        handed = {
            name
            for name, others in takers.items()
            if name not in called and all(order.index(other) < order.index(name) for other in others)
        }
        return (handed | (late & takers.keys()) | self._samples(called)) - read

    def _samples(self, called: set[str | None]) -> set[str]:
        """Functions without parameters that show what a decorator of the cell does: it is what is asked for."""
        own = self.defined.keys()
        return {
            name
            for name, f in self.defined.items()
            if name in called and not f.is_class and not f.parameters and f.outer.names & (own - {name})
        }

    @cached_property
    def _bound(self) -> set[str]:
        """The names that the session's statements and definitions give."""
        return {*self.defined, *(name for i in self.statements for name in self.walks[i].binds)}

    @cached_property
    def read_by(self) -> Counter[str]:
        """Name -> how many statements read it."""
        return Counter(name for walk in self.walks for name in walk.free if name is not None)

    def sets_data(self, position: int) -> bool:
        """Whether a statement sets an object of the session to written data."""
        return all(
            isinstance(part, flow.Bind)
            and bool(part.changes)
            and not (part.names or part.value.calls or part.value.names - part.changes or part.changes & self._bound)
            for part in self.program.units[position].block
        )

    def extends_session(self, position: int) -> bool:
        """Whether a statement stores a definition in an object of the session: a method added to a class."""
        block = self.program.units[position].block
        return bool(block) and all(
            isinstance(part, flow.Bind)
            and not part.names
            and not part.value.calls
            and bool(part.changes)
            and not part.changes & self._bound
            and bool(part.value.names - part.changes)
            and part.value.names - part.changes <= self.subjects
            for part in block
        )

    def _reached(self, names: Iterable[str]) -> set[str]:
        """These definitions and all that they need."""
        reached, pending = set[str](), list(names)
        while pending:
            name = pending.pop()
            if name not in reached and name in self.defined:
                reached.add(name)
                pending += self.origin(self.of[name].free)
        return reached

    def judges(self, position: int) -> bool:
        """Whether a statement judges a result of the solution, or uses what only tests need."""
        walk = self.walks[position]
        if self.program.units[position].imports:
            return False
        if all(isinstance(part, flow.Assert) for part in self.program.units[position].block):
            return True
        reads = walk.reads
        if reads & self.program.libraries or reads & (self.defined.keys() - self.subjects):
            return True
        if any(check.strict and (not check.shown) and self._is_result(check) for check in walk.checks):
            return True
        if not self._is_closed(walk):
            return False
        return any(
            self._is_result(check) and (not check.shown or self._is_compared(check))
            for check in [*walk.checks, *self._reports(walk, self.held)]
        )

    def _is_result(self, check: Check) -> bool:
        return bool(self.origin(n for value in check.values for n in value.names) & self.subjects)

    def _is_compared(self, check: Check) -> bool:
        """Whether a result is compared with something that is none."""
        compared = pairs(check.values, self.held, self.defined)
        return any(bool(left & self.subjects) != bool(right & self.subjects) for left, right in compared)

    def _is_closed(self, walk: Walk) -> bool:
        """Whether a statement uses nothing of its session: it works on examples of its own."""
        return walk.free <= self._bound | self.program.given | {None} and "input" not in walk.reads


def roles(program: Program) -> list[Role]:
    """Role of each top-level statement, in order."""
    cell = _Cell(program)
    if not cell.defined:
        return _of_script(program)
    tests = {i for i in cell.statements if cell.judges(i)}
    tests |= {i for i, unit in enumerate(program.units) if unit.defined and unit.defined.name not in cell.subjects}
    last = max((i for i, unit in enumerate(program.units) if unit.defined), default=0)
    tests |= {i for i in range(last + 1, max(tests, default=0)) if program.units[i].block and cell.sets_data(i)}
    solution = _needed_by_solution(cell, tests)
    tests = _with_their_needs(cell, tests, solution)
    shown = _shown(cell, tests, solution)
    kept = {name for i in solution for name in cell.walks[i].binds}
    made = {name for i in tests for name in cell.walks[i].binds} - kept
    for i in cell.statements:  # what uses the values of a test goes with it
        if i not in solution and cell.walks[i].free & made:
            tests.add(i)
            made |= cell.walks[i].binds - kept
    for i in sorted(shown):  # a text alone after a test says that it passed
        unit = program.units[i]
        if i - 1 in tests and i - 1 in cell.statements and all(isinstance(part, flow.Show) for part in unit.block):
            tests |= set() if cell.walks[i].free - program.given else {i}
    return [
        Role.TEST if i in tests else Role.DEMONSTRATION if i in shown else Role.SOLUTION
        for i in range(len(program.units))
    ]


def _of_script(program: Program) -> list[Role]:
    """Of a program that defines nothing: only its assertions are tests."""
    tests = {
        i for i, unit in enumerate(program.units) if unit.block and all(isinstance(s, flow.Assert) for s in unit.block)
    }
    return [Role.TEST if i in tests else Role.SOLUTION for i in range(len(program.units))]


def _needed_by_solution(cell: _Cell, tests: set[int]) -> set[int]:
    """Positions of the asked definitions, and of all that they need."""
    units = cell.program.units
    last = max(i for i, unit in enumerate(units) if unit.defined and unit.defined.name in cell.subjects)
    until = max(
        last, min(tests & set(cell.statements), default=len(units))
    )  # what is changed later is changed by tests
    needed = {i for i, unit in enumerate(units) if unit.defined and unit.defined.name in cell.subjects}
    needed |= {i for i in cell.statements if i not in tests and cell.extends_session(i)}
    givers: dict[str, set[int]] = defaultdict(set)
    for i in cell.statements:
        if i not in tests:
            walk = cell.walks[i]
            for name in walk.binds | (walk.changes - cell.defined.keys() if i < until else set()):
                givers[name].add(i)
    return _with_givers(cell, needed, givers, cell.subjects)


def _with_givers(cell: _Cell, places: set[int], givers: Mapping[str, set[int]], more: Iterable[str] = ()) -> set[int]:
    """These statements, and those that give what they (and `more`) read, transitively."""
    places = set(places)
    pending = [*more, *(name for i in places for name in cell.walks[i].free)]
    seen = set(pending)
    while pending:
        for i in givers.get(pending.pop(), set()) - places:
            places.add(i)
            pending += cell.walks[i].free - seen
            seen |= cell.walks[i].free
    return places


def _with_their_needs(cell: _Cell, tests: set[int], solution: set[int]) -> set[int]:
    """The tests with the statements that make or change what they read."""
    needed = set(tests)
    libraries = cell.program.libraries
    needed |= {i for i in cell.statements if cell.program.units[i].imports and cell.walks[i].binds & libraries}
    needed -= solution
    givers: dict[str, set[int]] = defaultdict(set)
    for i in cell.statements:
        walk = cell.walks[i]
        if i not in solution:
            for name in walk.binds | walk.changes | (walk.passed - cell.defined.keys()):
                givers[name].add(i)
    return _with_givers(cell, needed, givers)


def _of_its_loop(cell: _Cell, position: int) -> set[str]:
    """The names that a loop gives its items, where no other statement reads them."""
    own = cell.walks[position].free
    given = {n for part in cell.program.units[position].block if isinstance(part, flow.Loop) for n in part.names}
    return {name for name in given if cell.read_by[name] == (name in own)}


def _shown(cell: _Cell, tests: set[int], solution: set[int]) -> set[int]:
    """Statements that use what is asked for and give it nothing, and what only they need."""
    rest = [i for i in cell.statements if i not in tests | solution]
    shown = {i for i in rest if cell.origin(cell.walks[i].reads) & cell.subjects and not cell.program.units[i].imports}
    last = max(i for i, unit in enumerate(cell.program.units) if unit.defined and unit.defined.name in cell.subjects)
    shown |= {
        i for i in rest if i > last and not (cell.walks[i].binds - _of_its_loop(cell, i) or cell.walks[i].changes)
    }
    readers: dict[str, set[int]] = defaultdict(set)
    for i, walk in enumerate(cell.walks):
        for name in walk.free:
            readers[name].add(i)
    before = -1
    while before < len(shown):
        before = len(shown)
        for i in reversed(rest):
            used = set().union(*(readers[name] for name in cell.walks[i].binds)) - {i}
            if used and used <= shown | tests:
                shown.add(i)
    empty = {
        i
        for i in solution
        if (f := cell.program.units[i].defined) is not None
        and f.is_empty
        and not any(f.name in walk.reads for walk in cell.walks)
    }
    if len(empty) < len({i for i in solution if cell.program.units[i].defined}):
        shown |= empty
        solution -= empty
    return shown
