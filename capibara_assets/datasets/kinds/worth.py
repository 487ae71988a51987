"""Whether an example teaches something that its prompt asks for: work to do, a task, nothing that only its author knew.

Judged by the texts alone. That an answer is right is judged by running it (executing.py, agreement/fitted.py).
"""

import ast
import copy
import re
from collections.abc import Iterator

from sqlglot import exp

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.code.queries import sql_texts, statements
from capibara_assets.datasets.code.structure import JAVASCRIPT, located_tokens, without_comments
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import SIGNATURE, SPLIT_TITLES, TESTS
from capibara_assets.executions.parsing import walk

TRIVIAL = "there is hardly anything to do"
DIALECT = "its query holds a clause that only another dialect or the sorting of NULL explains"
LOOKED_UP = "its query compares with a value that its prompt does not hold: its author had looked it up"
LOOSE = "its query looks for a part of a text that the task quotes whole"
LOOKS = "its answer looks at the tables of a database, and its task asks for rows"
UNSTATED = "its query rounds, cuts off or compares with a number that its prompt does not state"
UNTOLD = "its answer is made of texts or data that its prompt does not tell"
CONTRADICTED = "the examples of its task contradict its test"
ANOTHER = "its answer defines something else than its task names"
NO_EFFECT = "its code holds a statement without effect"
MISREAD = "its test compares only a part of what it expects: the rest is the assertion's message"
NEEDLESS = "its repair also changes what its error and its task do not speak of"
UNASKED = "its answer serves what its prompt never asks for"
INPUT_ONLY = "its repair changes input data, not code"
OVERWRITTEN = "its test reads a name that the code sets more than once"
STATED = "an assertion in its prompt tells its output"
NO_PLACE = "no place is told of the error, which its prompt asks for"

_BUILTIN, _METHOD, _LOOP = 2, 3, 2  # steps of a call and a loop: to know a method is to know something
_PYTHON_STEPS = (
    ast.If, ast.IfExp, ast.For, ast.While, ast.comprehension, ast.Lambda, ast.Try, ast.With, ast.AsyncWith, ast.Match,
    ast.BinOp, ast.BoolOp, ast.Compare, ast.AugAssign, ast.Call, ast.Subscript, ast.Raise, ast.Yield, ast.ClassDef,
    ast.FormattedValue, ast.Starred, ast.keyword,
)  # fmt: skip
_IN_JAVASCRIPT = """if_statement ternary_expression for_statement for_in_statement while_statement do_statement
switch_case binary_expression augmented_assignment_expression update_expression call_expression
new_expression subscript_expression arrow_function function_expression try_statement
throw_statement class_declaration template_substitution spread_element unary_expression regex"""
_JAVASCRIPT_STEPS = frozenset(_IN_JAVASCRIPT.split())
_SHOWS = re.compile(r"^(print|console\.log|repr|str|JSON\.stringify)\b")
_DIALECT = re.compile(  # a collation of a server, or NULL above the largest values
    r"\bCOLLATE\s+(?!NOCASE|BINARY|RTRIM)\w|\bDESC\s+NULLS\s+FIRST\b|"
    r"\bIS\s+NULL\s+THEN\s+1\s+ELSE\s+0\s+END\s+DESC\b",
    re.IGNORECASE,
)
_FLAGGED = re.compile(r"\bNULLS\s+(FIRST|LAST)\b|\bIS\s+NULL\s+THEN\s+\d\s+ELSE\s+\d\s+END\b", re.IGNORECASE)
_DATABASE = re.compile(r"\b(FROM|JOIN)\s+\w+\.\w+", re.IGNORECASE)  # a table by the name of its database
_ON_DIALECT = re.compile(r"\bnulls?\b|\bmissing\b|\bcollat|\bunknown\b|\bcase.?(in)?sensitiv", re.IGNORECASE)
_LOOK = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:show|describe|desc|pragma|use)\b", re.IGNORECASE)
_ON_TABLES = re.compile(r"\b(tables?|columns?|fields?|schema|structure|types?|index(es)?|databases?)\b", re.IGNORECASE)
_ROUNDS = re.compile(r"\bround|digit|decimal|place|precision|nearest|whole|integer|percent\D*\d", re.IGNORECASE)
_CUTS = re.compile(r"\bLIMIT\s+(\d+)|(?:[<>]=?)\s*(\d+(?:\.\d+)?)(?![\d.]*\s*[*/+-])", re.IGNORECASE)
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_QUOTED = re.compile(r"[\"“']([^\"”'\n]{2,60})[\"”']")
_PARTIAL = re.compile(r"\b(contain|includ|like|with the word|substring|part of|mention|starting|ending|similar)", re.I)
_PATTERN = re.compile(r"LIKE\s+(?:LOWER\s*\(\s*)?'%([^'%]+)%'", re.IGNORECASE)
_LONG_TEXT, _MOST_UNTOLD, _MOST_NUMBERS, _MOST_FOREIGN = 25, 200, 8, 4
_ROUTE = re.compile(r"^@\w+\.\w+\(\s*[\"'](/[^\"']*)[\"']", re.MULTILINE)
_NAMED = re.compile(r"^[ \t]*(?:async +)?def +(\w+) *\(|^[ \t]*assert +(?:not +)?(\w+)\(", re.MULTILINE)
_DEFINES = re.compile(r"\b(def|class|lambda|function)\b|=>")
_NESTED = r"[^()\n]*(?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)[^()\n]*)*"
_CALL = re.compile(rf"\s*(?:(?:print|console\.log)\(\s*)?[\w$]+\({_NESTED}\)\s*\)?;?\s*$")
_LITERAL = re.compile(r"^(?:[rbfuRBFU]{0,2}['\"`]|\d)")
_FILE = re.compile(
    r"(?:https?://\S+|[\w./~-]+\.(?:txt|[ct]sv|jsonl?|xml|ya?ml|parquet|xlsx?|db|sqlite|zip|gz|png|jpe?g|wav|pkl|np[yz]|pt|h5))$"
)
_WRITES = re.compile(r"\bopen\([^()\n]*,\s*(?:mode=)?[\"'][wxa]|\.to_\w+\(|\bdump\(|\b(?:sav|writ)e")
_FEWEST_OF_TABLE = 3
_STEM = 4  # letters by which forms of a word are known


def unworthy(candidate: ExampleCandidate, fewest_steps: int) -> str | None:
    """Why an example is not worth learning, or asks for what nobody could know; None where it is.

    Args:
        fewest_steps: of code that is worth writing or reading (`steps`).
    """
    if candidate.language == "sql":
        return _unworthy_query(candidate) if candidate.kind in ("solve", "apply", "repair") else None
    if candidate.kind in ("solve", "apply") and any(True for _ in sql_texts(candidate.answer, candidate.language)):
        return _unworthy_query(candidate)
    if candidate.language != "python" and candidate.language not in JAVASCRIPT:
        return None
    if candidate.kind == "predict":
        return _unworthy_output(candidate, fewest_steps)
    if candidate.kind not in ("solve", "apply", "repair"):
        return None
    if _misread(candidate.test or "", candidate.language):
        return MISREAD
    if _is_contradicted(candidate):
        return CONTRADICTED
    if candidate.language == "python" and _defines_another(candidate):
        return ANOTHER
    if candidate.language == "python" and _holds_idle(candidate.answer):
        return NO_EFFECT
    if candidate.kind == "repair":
        return _unworthy_repair(candidate)
    if _DEFINES.search(candidate.answer) and steps(candidate.answer, candidate.language) < fewest_steps:
        return TRIVIAL
    if any(path.partition("{")[0] not in candidate.prompt for path in _ROUTE.findall(candidate.answer)):
        return UNASKED
    return UNTOLD if _untold(candidate) else None


def _unworthy_query(candidate: ExampleCandidate) -> str | None:
    looked_up = candidate.language == "sql" and _is_looked_up(candidate.answer, candidate.prompt)
    return _unworthy_clause(candidate) or (LOOKED_UP if looked_up else None)


def _unworthy_clause(candidate: ExampleCandidate) -> str | None:
    asked = candidate.prompt
    if candidate.kind == "repair":
        failing = candidate.failing or ""
        if _FLAGGED.search(candidate.answer) and not _FLAGGED.search(failing) and not _ON_DIALECT.search(asked):
            return NEEDLESS
        named = "no such table" in asked or "unknown database" in asked
        return NEEDLESS if _DATABASE.search(failing) and not (named or _DATABASE.search(candidate.answer)) else None
    if candidate.language == "sql" and _LOOK.match(candidate.answer) and not _ON_TABLES.search(_stated(asked)):
        return LOOKS
    if _DIALECT.search(candidate.answer) and not _ON_DIALECT.search(asked):
        return DIALECT
    if candidate.language == "sql" and _is_unstated(candidate.answer, asked):
        return UNSTATED
    quoted = {text.lower() for text in _QUOTED.findall(_stated(asked))}
    if quoted & {text.lower() for text in _PATTERN.findall(candidate.answer)} and not _PARTIAL.search(asked):
        return LOOSE
    return None


def _numbers_said(asked: str) -> set[str]:
    """The numbers of a prompt, also those in words."""
    words = {str(value) for value, word in enumerate(_NUMBERS) if re.search(rf"\b{word}\b", asked, re.IGNORECASE)}
    return {*re.findall(r"\d+(?:\.\d+)?", asked), *words}


def _is_looked_up(query: str, asked: str) -> bool:
    """Whether a query asks for a number that the prompt does not hold, or a text of which it holds a word in no form.

    A form is a word with the same beginning: `Asia` of "Asian".
    """
    known = set(re.findall(r"\w+", asked.lower()))
    compared = [c for statement in statements(query) for c in statement.find_all(exp.EQ, exp.NEQ, exp.In, exp.Like)]
    texts = {text.this.lower() for one in compared for text in one.find_all(exp.Literal) if text.is_string}
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    equal = [part for one in compared for part in (one.this, one.args.get("expression"), *one.expressions)]
    numbers = {part.this for part in equal if isinstance(part, exp.Literal) and not part.is_string}
    return bool(numbers - {"0", "1"} - _numbers_said(asked)) or any(
        word not in known and (len(word) < _STEM or not any(one.startswith(word[:_STEM]) for one in known))
        for word in words
    )


def _stated(asked: str) -> str:
    """What a prompt says before its sections."""
    return SPLIT_TITLES.split(asked)[0]


def _is_unstated(query: str, asked: str) -> bool:
    """Whether a query rounds, or holds a bound of more than one, of which the prompt says nothing."""
    if "ROUND(" in query.upper() and not _ROUNDS.search(asked):
        return True
    said = _numbers_said(asked)
    bounds = {limit or bound for limit, bound in _CUTS.findall(query)}
    return any(bound not in said for bound in bounds - {"0", "1"})


def _unworthy_output(candidate: ExampleCandidate, fewest_steps: int) -> str | None:
    language, code = candidate.language, candidate.prompt.partition("\n\n")[2]
    if candidate.prompt.startswith("Predict the error"):
        return None if "\n" in candidate.answer else NO_PLACE
    if _is_stated(code, candidate.answer, language):
        return STATED
    program = re.sub(r"^(Session so far|Code):$", "", code, flags=re.MULTILINE)
    return TRIVIAL if steps(program, language) < fewest_steps else None


def steps(code: str, language: str) -> int:
    """What code does, counted: decisions, loops, operations, calls and their options.

    Its own functions and printing do not count, nor do decorators but for their options.
    """
    if language == "python":
        tree = python_source.parse(code)
        return 99 if tree is None else sum(_counts(node, tree) for node in _evaluated(tree))
    root = javascript_source.parse(code)
    own = set(javascript_source.declared(root))
    found = 0
    for node in javascript_source.walk(root):
        if node.type not in _JAVASCRIPT_STEPS:
            continue
        if node.type == "call_expression":
            called = node.child_by_field_name("function")
            name = javascript_source.text(called) if called is not None else ""
            found += 0 if name in own or _SHOWS.match(name) else _weight(name, "Math.")
        elif node.type in ("arrow_function", "function_expression"):
            parent = node.parent
            found += parent is None or parent.type != "variable_declarator"
        else:
            found += node.type.startswith(("for", "while", "do"))
            found += node.type != "unary_expression" or javascript_source.text(node)[:1] == "!"
    return found


def _weight(name: str, arithmetic: str) -> int:
    return 1 if name.startswith(arithmetic) else _METHOD if "." in name else _BUILTIN


def _evaluated(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node but annotations, and of decorators their options: what stands in these does nothing by itself."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field, value in ast.iter_fields(node):
            inner = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
            if field == "decorator_list":
                pending += [keyword for one in inner if isinstance(one, ast.Call) for keyword in one.keywords]
            elif field not in ("annotation", "returns"):
                pending += inner


def _counts(node: ast.AST, tree: ast.Module) -> int:
    if not isinstance(node, _PYTHON_STEPS):
        return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        own = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        name = ast.unparse(node.func)
        return 0 if name in own or _SHOWS.match(name) else _weight(name, "math.")
    return _LOOP if isinstance(node, ast.For | ast.While | ast.comprehension) else 1


def _holds_idle(code: str) -> bool:
    """Whether a function holds an expression that does nothing, such as a value that it was to return."""
    tree = python_source.parse(code)
    for function in walk(tree) if tree is not None else ():
        if isinstance(function, python_source.Function):
            for node in walk(function):
                if isinstance(node, ast.Expr) and node is not function.body[0]:
                    value = node.value
                    if isinstance(value, ast.Compare | ast.Name | ast.BinOp):
                        return True
                    if isinstance(value, ast.Constant) and not isinstance(value.value, str) and value.value is not ...:
                        return True
    return False


def _misread(test: str, language: str) -> bool:
    """Whether an assertion's message is a value: `assert f(x) == 1, 2` was meant to compare a pair."""
    tree = python_source.parse(test) if language == "python" and "assert" in test else None
    return tree is not None and any(
        isinstance(node, ast.Assert)
        and (isinstance(node.msg, ast.UnaryOp | ast.List | ast.Tuple | ast.Dict) or _is_number(node.msg))
        for node in walk(tree)
    )


def _is_contradicted(candidate: ExampleCandidate) -> bool:
    """Whether the prose of a prompt expects another list or truth of a call than its test."""
    prose, *parts = SPLIT_TITLES.split(candidate.prompt)
    shown = dict(zip(parts[::2], parts[1::2], strict=True)).get(TESTS, "")
    asserted = {case.arguments: case.expected for case in cases(f"{shown}\n{candidate.test or ''}")}
    return any(
        case.expected != other
        and (
            {case.expected, other} == {"true", "false"}
            or (case.expected[:1] == "[" == other[:1] and case.expected.count(",") == other.count(","))
        )
        for case in cases(prose)
        if (other := asserted.get(case.arguments)) is not None
    )


def _defines_another(candidate: ExampleCandidate) -> bool:
    """Whether a task gives the head of a function, or a call that has to come true, and its answer defines others."""
    named = {name for found in _NAMED.findall(_stated(candidate.prompt)) for name in found if name}
    tree = python_source.parse(candidate.answer) if named else None
    own = {node.name for node in (walk(tree) if tree is not None else ()) if isinstance(node, python_source.Definition)}
    return bool(own) and not named & own


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)


def _untold(candidate: ExampleCandidate) -> bool:
    """Whether an answer holds much that only its author knew: one asked for by tests alone, or that no test judges."""
    texts, numbers = _literals(candidate.answer, candidate.language)
    head, _, rest = candidate.prompt.partition("\n\n")
    if "\n" not in head and rest.startswith((SIGNATURE, TESTS)):  # no task is stated
        foreign = {text for text in (*texts, *numbers) if text.strip() and text not in candidate.prompt}
        return len(foreign) >= _MOST_FOREIGN and not _ROUTE.search(candidate.answer)
    if candidate.test:
        return False
    if candidate.language == "python" and _holds_records(candidate.answer, candidate.prompt):
        return True
    if not _WRITES.search(candidate.answer) and any(_FILE.match(t) and t not in candidate.prompt for t in texts):
        return True
    long = sum(len(text) for text in texts if len(text) >= _LONG_TEXT and text not in candidate.prompt)
    return long > _MOST_UNTOLD or sum(number not in candidate.prompt for number in numbers) >= _MOST_NUMBERS


def _holds_records(code: str, prompt: str) -> bool:
    """Whether code binds several records at its top whose texts the prompt does not tell."""
    tree = python_source.parse(code)
    bound = [node.value for node in (tree.body if tree is not None else ()) if isinstance(node, ast.Assign)]
    records = [node for value in bound for node in walk(value) if isinstance(node, ast.Dict)]
    texts = [
        [v.value for v in one.values if isinstance(v, ast.Constant) and isinstance(v.value, str)] for one in records
    ]
    return sum(any(text not in prompt for text in listed) for listed in texts) > 1


def _literals(code: str, language: str) -> tuple[list[str], list[str]]:
    """(contents of texts, numbers of more than one digit) of a program."""
    tokens = [token for token, _, _ in located_tokens(code, language)]
    texts = [t.lstrip("rbfuRBFU").strip("'\"`") for t in tokens if t.lstrip("rbfuRBFU")[:1] in ("'", '"', "`")]
    return texts, [t for t in tokens if t[0].isdigit() and len(t) > 1]


def _unworthy_repair(candidate: ExampleCandidate) -> str | None:
    given_only = candidate.failing and not _DEFINES.search(candidate.answer)
    if given_only and (_changes_input(candidate) or (candidate.language == "python" and _changes_table(candidate))):
        return INPUT_ONLY
    return OVERWRITTEN if candidate.language == "python" and _is_overwritten(candidate) else None


def is_call(code: str) -> bool:
    """Whether code is one call of something that is defined elsewhere, perhaps printed."""
    return _CALL.match(code) is not None


def _changes_input(candidate: ExampleCandidate) -> bool:
    """Whether all the code is one call, or only literals differ, and what is new is what the test expects."""
    before, after = (
        [token for token, _, _ in located_tokens(code, candidate.language)]
        for code in (candidate.failing or "", candidate.answer)
    )
    new = [b for a, b in zip(before, after, strict=False) if a != b]
    if is_call(candidate.answer):
        return True
    if len(before) != len(after) or not new or not all(map(_LITERAL.match, new)):
        return False
    shown = candidate.prompt.rpartition("\n\nCode:\n")[2].partition(f"\n\n{TESTS}\n")[2]
    return all(token in shown for token in new)


def _changes_table(candidate: ExampleCandidate) -> bool:
    """Whether all that differs are values of written tables: which ones are right, only their author knows."""
    before, after = python_source.parse(candidate.failing or ""), python_source.parse(candidate.answer)
    if before is None or after is None:
        return False
    return ast.dump(before) != ast.dump(after) and _but_tables(before) == _but_tables(after)


def _but_tables(tree: ast.Module) -> str:
    """The tree as text, with 0 for each constant of a list or dictionary that holds several and nothing else."""
    own = copy.deepcopy(tree)
    for node in walk(own):
        parts = node.elts if isinstance(node, ast.List) else node.values if isinstance(node, ast.Dict) else []
        constants = [part for part in parts if isinstance(part, ast.Constant)]
        if len(constants) == len(parts) >= _FEWEST_OF_TABLE:
            for part in constants:
                part.value = 0
    return ast.dump(own)


def _is_overwritten(candidate: ExampleCandidate) -> bool:
    code, test = python_source.parse(candidate.answer), python_source.parse(candidate.test or "")
    if code is None or test is None or _DEFINES.search(candidate.answer):
        return False
    targets = [
        t.id for node in code.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
    ]
    read = {node.id for node in walk(test) if isinstance(node, ast.Name)}
    return any(targets.count(name) > 1 for name in read)


def _is_stated(code: str, output: str, language: str) -> bool:
    """Whether an assertion in code quotes the output, or the last part of it."""
    if "assert" not in code:
        return False
    flat = "".join(output.split()).strip("()'\"")
    parts = {flat, flat.partition(",")[2]} - {""}
    asserted = [
        "".join(one.split())
        for one in re.split(r"\n(?=\S)|\n\s*(?=(?:console\.)?assert)", without_comments(code, language))
        if re.match(r"\s*(console\.)?assert", one)
    ]
    return any(len(part) > 1 and part in one for part in parts for one in asserted)
