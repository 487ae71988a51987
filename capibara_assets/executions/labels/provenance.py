"""Traces names to libraries: a cell that calls `ask(question)` is evidence for the service behind `ask`.

Most cells of a session import nothing. But `client` was made by a library's class, `ask` is a function that uses
`client`, and `answer` is what it returned: the library is followed through assignments, definitions, loops and `with`
blocks, over all cells at once, so that the order of the cells does not matter.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from capibara_assets.executions.labels.libraries import ALIASES, ARITHMETIC, GENERAL, MODULES, Signal, module_signal
from capibara_assets.executions.labels.signals import Sign
from capibara_assets.executions.parsing import descend, python_nodes

_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]", re.MULTILINE)
_ALIAS = re.compile(rf"\b(?:{'|'.join(ALIASES)})\.")
_ALIASES = tuple(f"{alias}." for alias in ALIASES)
_IMPORTS = (ast.Import, ast.ImportFrom)
_MAKERS = (
    ast.Assign,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.AugAssign,
    ast.For,
    ast.AsyncFor,
    ast.comprehension,
    ast.withitem,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)
_HOPS = 3  # assignments between a library and a name
_DIRECT, _DERIVED = 0.8, 0.6  # weight of one use of a library, and of what came from it
_MOST_DIRECT, _MOST_DERIVED = 3.0, 2.0  # per library and cell


@dataclass(frozen=True, slots=True)
class NameFlow:
    """How names get their values in one cell, and how often each is used."""

    imports: tuple[tuple[str, str], ...]  # (name, known library)
    edges: tuple[tuple[str, frozenset[str]], ...]  # (name, names its value was made from)
    uses: tuple[tuple[str, int], ...]  # (name, times something of it was called or read)
    plain: tuple[tuple[str, int], ...]  # (name, those of these times that any program computes with)


@dataclass(frozen=True, slots=True)
class _Origin:
    library: str
    signal: Signal
    hops: int

    @property
    def rank(self) -> tuple[bool, int, str]:
        return self.signal.helper, self.hops, self.library


def session_signs(codes: Sequence[str]) -> list[list[Sign]]:
    """For each Python cell of a session the signs of the libraries behind the names it uses."""
    if not _names_libraries("\n".join(codes)):
        return [[] for _ in codes]  # most puzzles: nothing to follow
    flows = [name_flow(code) for code in codes]
    origins = _origins(flows)
    return [list(_used(flow, origins)) for flow in flows] if origins else [[] for _ in codes]


def _names_libraries(code: str) -> bool:
    imports = "import" in code or "from" in code  # searching for a word costs a tenth of matching an expression
    if imports and _IMPORT.search(code) is not None:
        return True
    return any(alias in code for alias in _ALIASES) and _ALIAS.search(code) is not None


def _origins(flows: Iterable[NameFlow]) -> dict[str, _Origin]:
    """The library behind each name of a session: a telling one before a helper, then the nearest."""
    flows = list(flows)
    origins: dict[str, _Origin] = {}
    for name, library in sorted({pair for flow in flows for pair in flow.imports}):
        origin = _Origin(library, MODULES[library], 0)
        origins[name] = min(origin, origins.get(name, origin), key=lambda origin: origin.rank)
    edges = sorted({(name, tuple(sorted(sources))) for flow in flows for name, sources in flow.edges})
    assigned = {name for name, _ in edges}
    used = {name for flow in flows for name, _ in flow.uses}
    for name in sorted((ALIASES.keys() & used) - assigned - origins.keys()):
        origins[name] = _Origin(ALIASES[name], MODULES[ALIASES[name]], 0)
    for hops in range(1, _HOPS + 1):
        reached: dict[str, _Origin] = {}
        for name, sources in edges:
            behind = [origins[source] for source in sources if source in origins]
            if not behind:
                continue
            best = min(behind, key=lambda origin: origin.rank)
            candidate = _Origin(best.library, best.signal, hops)
            known = min((o for o in (origins.get(name), reached.get(name)) if o), key=lambda o: o.rank, default=None)
            if known is None or (known.signal.helper and not candidate.signal.helper):
                reached[name] = candidate
        if not reached:
            break
        origins |= reached
    return origins


def _used(flow: NameFlow, origins: dict[str, _Origin]) -> Iterator[Sign]:
    plain = dict(flow.plain)
    for name, times in flow.uses:
        if (origin := origins.get(name)) is None:
            continue
        domain, _, helper = origin.signal
        if origin.library in GENERAL:  # by what is called of it, not by what was made with it
            times = 0 if origin.hops else times - plain.get(name, 0)
        if not times:
            continue
        if origin.hops == 0:
            yield Sign(domain, f"{origin.library} in use", min(_DIRECT * times, _MOST_DIRECT), helper)
        else:
            yield Sign(domain, f"made by {origin.library}", min(_DERIVED * times, _MOST_DERIVED), helper)


@lru_cache(maxsize=16_384)
def name_flow(code: str) -> NameFlow:
    """The name flow of one cell; empty when it does not parse."""
    uses: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    nodes = python_nodes(code)
    for node in nodes.get(ast.Attribute, ()):
        if type(node.value) is ast.Name:
            # pandas is also how SQL is run from Python
            uses[node.value.id] += not node.attr.startswith("read_sql")
            plain[node.value.id] += node.attr in ARITHMETIC
    uses.update(node.func.id for node in nodes.get(ast.Call, ()) if type(node.func) is ast.Name)
    imports = [pair for kind in _IMPORTS for node in nodes.get(kind, ()) for pair in _imports(node)]
    edges = [edge for kind in _MAKERS for node in nodes.get(kind, ()) for edge in _made(node)]
    return NameFlow(tuple(imports), tuple((n, s) for n, s in edges if s), *map(_sorted, (uses, plain)))


def _sorted(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items()))


def _made(node: ast.AST) -> Iterator[tuple[str, frozenset[str]]]:
    """The names that a statement gives a value, and the names it is made from."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from _edges(targets, value)
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield from _edges([target], value)
        case ast.comprehension(target=target, iter=value):
            yield from _edges([target], value)
        case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
            yield from _edges([target], value)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, frozenset(_loaded(node))
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield from _edges([target], value)
        case ast.AugAssign(target=target, value=value):
            yield from _edges([target], value)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if known := module_signal(alias.name):
                yield alias.asname or alias.name.split(".")[0], known[0]
    elif node.module is not None and not node.level:
        for alias in node.names:
            known = module_signal(f"{node.module}.{alias.name}")
            if known and not (known[0] in GENERAL and alias.name in ARITHMETIC):
                yield alias.asname or alias.name, known[0]


def _edges(targets: Iterable[ast.expr], value: ast.expr) -> Iterator[tuple[str, frozenset[str]]]:
    sources = frozenset(_loaded(value))
    for target in targets:
        while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):  # df["a"] = … tells of df
            target = target.value
        for node in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            if isinstance(node, ast.Name):
                yield node.id, sources - {node.id}


def _loaded(node: ast.AST) -> Iterable[str]:
    if type(node) is ast.Constant:
        return ()
    return (inner.id for inner in descend(node) if type(inner) is ast.Name)
