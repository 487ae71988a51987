"""`no_op_repair`: repairs that change nothing that runs, and diagnoses that call the right code wrong.

A *repair* is one when the failing code of the prompt and the answer are the same program: equal up to the names that
they bind themselves, comments, docstrings, spacing, quotes of strings, redundant parentheses and separators of
statements. A diagnosis is one when a line that it calls wrong equals, as code, a line that it calls right (or a line
that the difference of the pair keeps or adds).

`import_only`: a *repair* that adds imports alone, of what its error names: of a module by its own name (or its usual
short one), or where nothing else happens than one statement without a definition.
"""

import ast
import io
import re
import shlex
import tokenize

from sqlglot import exp

from benchmarks.datasets.faults import edits, javascript_code
from benchmarks.datasets.faults.cases import Case, is_error
from benchmarks.datasets.faults.python_code import Function, parameters, parse
from benchmarks.datasets.faults.queries.sql_code import statements

_QUOTED = re.compile(r"``([^\n]+?)``|`([^`\n]+)`")
_WRONG = re.compile(
    r"\b(?:wrong|incorrect|faulty|bad|mistake|bug(?:gy)?|culprit|fails?|problem(?:atic)?|instead of|was|before|old)\b",
    re.I,
)
_RIGHT = re.compile(
    r"\b(?:right|correct(?:ed)?|fix(?:ed)?|should|must|replace[sd]?|becomes?|needs?|now|after|new|to)\b", re.I
)
_NOT_DEFINED = re.compile(r"\b(?:name '(\w+)'|([\w$]+)) is not defined")
_IMPORT = re.compile(r"import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*$")
_ANY_IMPORT = re.compile(r"(?:from\s+\S+\s+)?import\s|(?:const|let|var)\s[^=]+=\s*(?:await\s+import|require)\(")
_KEPT = frozenset(("self", "cls"))


def no_op_repair(case: Case) -> str | None:
    """Why a repair or diagnosis changes nothing; None when it does, and for all other kinds."""
    if edits.is_edit(case):
        return edits.changes_nothing(case)
    if case.kind == "repair":
        failing = case.failing
        if failing is not None and same_program(failing.text, case.code, case.language):
            return "the failing code and the answer are the same program"
        return None
    return _same_line(case) if case.kind in ("explain", "chat") else None


def import_only(case: Case) -> str | None:
    """The name of which a repair adds nothing but the import; None where there is more to it."""
    error = "\n".join(section.text for section in case.sections if is_error(section))
    missing = _NOT_DEFINED.search(error)
    if case.kind != "repair" or case.failing is None or missing is None:
        return None
    name = missing.group(1) or missing.group(2)
    old, new = ([line for line in text.split("\n") if line.strip()] for text in (case.failing.text, case.code))
    left = list(old)
    added = []
    for line in new:
        if left and line.strip() == left[0].strip():
            left.pop(0)
        else:
            added.append(line.strip())
    if left or not added or not all(map(_ANY_IMPORT.match, added)):
        return None
    if not any(re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", line) for line in added):
        return None
    if case.language != "python":
        return name
    tree = parse(case.code)
    rest = [
        node for node in (tree.body if tree is not None else []) if not isinstance(node, ast.Import | ast.ImportFrom)
    ]
    lone = len(rest) <= 1 and not any(isinstance(node, Function | ast.ClassDef) for node in rest)
    return name if lone or all(map(_IMPORT.match, added)) else None


def _same_line(case: Case) -> str | None:
    wrong, right = _named(case.answer)
    if case.diff:
        right |= {line[1:].strip() for line in case.diff.splitlines() if re.match(r"[+ ](?!\+\+)", line)}
    forms = {form: line for line in right if (form := canonical_line(line, case.language))}
    for line in sorted(wrong):
        if (form := canonical_line(line, case.language)) in forms:
            return f"called wrong and right at once: {line} | {forms[form]}"
    return None


def _named(answer: str) -> tuple[set[str], set[str]]:
    """Quoted code that an answer calls wrong, and such that it calls right: by the words before each quote."""
    wrong: set[str] = set()
    right: set[str] = set()
    for line in answer.splitlines():
        end = 0
        for found in _QUOTED.finditer(line):
            words = line[end : found.start()]
            after = line[found.end() :].split("`")[0]
            code = next(filter(None, found.groups())).strip()
            end = found.end()
            calls_wrong = list(_WRONG.finditer(words)) or (
                list(_WRONG.finditer(after)) if not _RIGHT.search(words) else []
            )
            calls_right = list(_RIGHT.finditer(words))
            if calls_wrong and (not calls_right or calls_wrong[-1].start() > calls_right[-1].start()):
                wrong.add(code)
            elif calls_right:
                right.add(code)
    return wrong, right


def same_program(one: str, other: str, language: str) -> bool:
    """Whether two codes are the same program."""
    if one.split() == other.split() and one.strip():
        return language != "python" or canonical(one, language) == canonical(other, language)
    left, right = canonical(one, language), canonical(other, language)
    return left is not None and left == right


def canonical(code: str, language: str) -> str | None:
    """A form that equal programs share; None for what cannot be read."""
    if language == "python":
        tree = parse(code)
        return None if tree is None else _python_form(tree)
    if language in ("javascript", "typescript"):
        return _javascript_form(code)
    if language == "sql":
        return _sql_form(code)
    return _shell_form(code)


def canonical_line(line: str, language: str) -> str | None:
    """The form of a single line, which may be a part of a statement; names count, as nothing shows what binds them."""
    line = line.strip()
    if language == "python":
        for dressed in (
            line,
            f"{line}\n pass",
            f"if 1: pass\n{line}\n pass",
            f"try: pass\n{line}\n pass",
            f"def _():\n {line}",
        ):
            if (tree := parse(dressed)) is not None:
                _undress(tree)
                return ast.dump(tree)
        return " ".join(_python_tokens(line))
    if language in ("javascript", "typescript"):
        return " ".join(_javascript_tokens(line, {}))
    if language == "sql":
        return re.sub(
            r"\s+", "", re.sub(r"'[^']*'|[^']+", lambda m: m[0] if m[0][0] == "'" else m[0].lower(), line)
        ).rstrip(";")
    return _shell_form(line)


# --- Python -----------------------------------------------------------------------------------------------------------


def _python_form(tree: ast.Module) -> str:
    """The tree without docstrings, with what it binds itself by order of appearance."""
    _undress(tree)
    bound = _python_bound(tree)
    order: dict[str, str] = {}

    def new(name: str) -> str:
        return order.setdefault(name, f"_{len(order)}") if name in bound else name

    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new(node.id)
        elif isinstance(node, ast.arg):
            node.arg = new(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            node.name = new(node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [new(name) for name in node.names]
    return ast.dump(tree)


def _undress(tree: ast.Module) -> None:
    """Removes docstrings, annotations of nothing, and kinds of strings."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, Function | ast.ClassDef | ast.Module) and isinstance(body, list) and len(body) > 1:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del body[0]
        if isinstance(node, ast.Constant):
            node.kind = None


def _python_bound(tree: ast.Module) -> set[str]:
    """Local names that code binds itself: of functions, classes and keywords others may depend on, they stay."""
    local: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.Lambda):
            local |= set(parameters(node))
            local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        elif isinstance(node, (ast.comprehension, ast.For)):
            local |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    keywords = {k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg}
    declared = {name for n in ast.walk(tree) if isinstance(n, ast.Global) for name in n.names}
    return local - keywords - declared - _KEPT


def _python_tokens(line: str) -> list[str]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(line).readline))
    except (tokenize.TokenError, SyntaxError):
        return line.split()
    found = []
    for token in tokens:
        if token.type == tokenize.STRING:
            try:
                found.append(repr(ast.literal_eval(token.string)))
                continue
            except (ValueError, SyntaxError):
                pass
        if token.type != tokenize.COMMENT and token.string.strip() and token.string != ";":
            found.append(token.string)
    return found


# --- JavaScript -------------------------------------------------------------------------------------------------------


def _javascript_form(code: str) -> str:
    root = javascript_code.parse(code)
    functions = set(javascript_code.definitions(root))
    order: dict[str, str] = dict.fromkeys(javascript_code.bindings(root) - functions, "")
    return " ".join(_javascript_tokens(code, order))


def _javascript_tokens(code: str, order: dict[str, str]) -> list[str]:
    """Tokens without comments, separators and trailing commas; names of `order` are numbered as they appear."""
    found: list[str] = []
    numbers = 0
    waiting = [javascript_code.parse(code)]
    while waiting:
        node = waiting.pop()
        said = javascript_code.text(node)
        if node.type == "comment" or said == ";" or (not node.children and not said.strip()):
            continue
        if node.type == "string":
            inner = re.sub(r"\\(['\"])", r"\1", said[1:-1])
            found.append(f"'{inner}'")
        elif node.type == "shorthand_property_identifier_pattern":
            found.append(said)
        elif node.type == "identifier" and said in order:
            if not order[said]:
                order[said] = f"_{(numbers := numbers + 1)}"
            found.append(order[said])
        elif not node.children:
            if said in (")", "]", "}") and found and found[-1] == ",":
                found.pop()
            found.append(said)
        else:
            waiting.extend(reversed(node.children))
    return found


# --- SQL and shell ----------------------------------------------------------------------------------------------------


def _sql_form(code: str) -> str:
    """Tokens in lower case, with aliases by order of appearance: a parser would read over what the database refused."""
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", code, flags=re.S)
    tokens = [token for token in re.findall(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|[^\s\w]", bare) if token != ";"]
    tokens = [token if token[0] == "'" else token.lower().strip('"') for token in tokens]
    aliases = _aliases(code)
    order: dict[str, str] = {}
    return " ".join(order.setdefault(token, f"_{len(order)}") if token in aliases else token for token in tokens)


def _aliases(code: str) -> set[str]:
    """Names that a query gives to its tables and parts."""
    trees = statements(code)
    sources = {
        a for tree in trees for source in tree.find_all(exp.Table, exp.Subquery, exp.CTE) if (a := source.alias.lower())
    }
    columns = {column.name.lower() for tree in trees for column in tree.find_all(exp.Column)}
    return sources - columns


def _shell_form(code: str) -> str:
    """Words as the shell reads them; operators and expansions of the shell stay apart from quoted ones."""
    lines = []
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=False, punctuation_chars=True)
        lexer.commenters = "#"
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            words = line.split()
        words = [_unquoted(word) for word in words if word != ";"]
        if words:
            lines.append(" ".join(words))
    return " ".join(lines)


def _unquoted(word: str) -> str:
    """A word without quotes that change nothing: around text that nothing splits or expands."""
    found = re.fullmatch(r"(['\"])([\w./:=,@%+-]*)\1", word)
    return found.group(2) if found else word
