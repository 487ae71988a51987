"""What Python reads from outside: free names by scope, files, and columns of frames."""

import ast
import re
import symtable

_READERS = re.compile(r"^(?:open|read_\w+|load|loadtxt|genfromtxt|read_text|read_bytes|Path|imread|ZipFile|connect)$")
_FILE = re.compile(r"^(?!https?:)[\w~./ -]*\w\.[A-Za-z]\w{0,5}$")


def free_names(tree: ast.Module) -> set[str]:
    """Names that are read as globals and bound nowhere at the top level, by the compiler's own table of scopes."""
    try:
        table = symtable.symtable(ast.unparse(tree), "answer", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return set()
    if any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(tree)):
        return set()
    top = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    read: set[str] = set()
    waiting = [table]
    while waiting:
        one = waiting.pop()
        for symbol in one.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                top.add(symbol.get_name())
            elif symbol.is_referenced() and (symbol.is_global() or (one is table and not symbol.is_assigned())):
                read.add(symbol.get_name())
        waiting.extend(one.get_children())
    annotations = {n.id for a in _annotations(tree) for n in ast.walk(a) if isinstance(n, ast.Name)}
    return read - top | (_read_too_early(tree) - annotations)


def _annotations(tree: ast.AST) -> list[ast.expr]:
    return [n.annotation for n in ast.walk(tree) if isinstance(n, ast.AnnAssign | ast.arg) and n.annotation is not None]


def _read_too_early(tree: ast.Module) -> set[str]:
    """Names that a statement of the top level reads and that only it or a later one binds: `df = df.dropna()`."""
    bound: set[str] = set()
    early: set[str] = set()
    bound_inside = {
        n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AugAssign):
            reading = statement.value
            names = {n.id for n in ast.walk(reading) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            inner = {n.id for n in ast.walk(reading) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            inner |= {
                a.arg
                for n in ast.walk(reading)
                if isinstance(n, ast.arguments)
                for a in [*n.args, *n.kwonlyargs, *n.posonlyargs]
            }
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                names.add(statement.target.id)
            targets = {
                n.id
                for t in _targets(statement)
                for n in ast.walk(t)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            early |= (names & targets) - bound - inner
        bound |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= {
            a.asname or a.name.split(".")[0]
            for n in ast.walk(statement)
            if isinstance(n, ast.Import | ast.ImportFrom)
            for a in n.names
        }
        bound |= bound_inside & {getattr(statement, "name", "")}
    return early


def _targets(statement: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def read_files(tree: ast.AST) -> set[str]:
    """Names of files that code reads and does not write itself."""
    read: set[str] = set()
    written: set[str] = set()
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        modes = [k.value.value for k in call.keywords if k.arg == "mode" and isinstance(k.value, ast.Constant)]
        writes = any(str(mode)[:1] in "wax" for mode in [*texts[1:2], *modes]) and name == "open"
        for text in texts[:1]:
            if not _FILE.match(text) or len(text) > 200:
                continue
            if writes or not _READERS.match(name) or name in ("Path", "connect"):
                written.add(text)
            else:
                read.add(text)
    return read - written


def read_columns(tree: ast.Module) -> set[str]:
    """Columns `frame["name"]` that code reads of a free name or of a file, and makes nowhere."""
    outside = free_names(tree)
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            function = statement.value.func
            if isinstance(function, ast.Attribute) and function.attr.startswith("read_"):
                outside |= {t.id for t in statement.targets if isinstance(t, ast.Name)}
    read: set[str] = set()
    keys: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            parts = node.slice.elts if isinstance(node.slice, ast.List) else [node.slice]
            texts = [
                p for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str) and p.value.isidentifier()
            ]
            if node.value.id in outside:
                read |= {str(part.value) for part in texts}
            keys |= {id(part) for part in texts}
    other = {
        str(n.value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in keys
    }
    made = {k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg}
    return read - other - made
