"""*predict* examples: code with all its dependencies -> the recorded output, or the error it raises.

These are candidates: `examples.build_dataset` keeps those that gave the same output when they were executed again.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.python_source import BUILTINS
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import (
    comments,
    structural_key,
    without_comments,
    without_gaps,
    without_trailing_spaces,
)
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, has_substance, mean_quality, quotable
from capibara_assets.datasets.kinds.proof import recorded_output
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.tracebacks import error_text

_UNKNOWABLE = re.compile(
    r"""\b(time\.(time|time_ns|perf_counter|monotonic|process_time|strftime|localtime|gmtime|ctime)|perf_counter|
    datetime\.(now|utcnow|today)|date\.today|performance\.now|random|randn?|randint|randperm|shuffle|manual_seed|
    default_rng|uuid[134]|secrets\.|environ|getenv|getpid|getcwd|platform\.|getsizeof|memory_usage|psutil|__version__|
    from_pretrained|getsource|random_state|sklearn\.datasets|sklearn\ import\ datasets|
    datasets\.load_\w+|Anthropic|OpenAI|client\.(messages|beta|completions|chat)|
    fsolve|curve_fit|least_squares|CURRENT_(DATE|TIME|TIMESTAMP)|julianday)\b
    |\boptimize\.\w+\(|\bvalue_counts\([^()\n]*\bbins=|\bq?cut\([^()\n]*,\s*(?:bins=|q=)?\d
    |\.fit\(|\.fit_\w+\(|\.backward\(|\bid\(|\bhash\(|\bvars\(|\bdir\(|\bhelp\(|Math\.random|new\s+Date\(\)|Date\.now|
    'now'|RANDOM\(|^[ \t]*[%!]""",
    re.VERBOSE | re.MULTILINE,
)
_UNTELLING = re.compile(
    r"""0x[0-9a-fA-F]{4,}|\bobject\ at\b|<[\w.]+\ object|<Figure|<Axes|<IPython|\[object\ |/(tmp|home|usr|root|Users)/|
    \b\d+(\.\d+)?\s?(ms|µs|us|ns|seconds|secs?)\b|\{\s*'[^':{}]*'\s*(,\s*'[^':{}]*'\s*)*\}
    |no\ such\ function:\ (?i:if|concat(_ws)?|string_agg|unhex|octet_length|timediff)\b # of later versions of SQLite
    |\+\ actual\ -\ expected|\{\(+[^{}:]*\),\ \( # sets of tuples, in whatever order
    |Warning:|<generator|<coroutine|<function|errors\.pydantic\.dev/\d|Could\ not\ get\ source""",
    re.VERBOSE,
)


UNQUOTED = "its last value is a text that was recorded without quotes"
_JAVASCRIPT_VALUE = re.compile(
    r"-?[\d.]+n?$|-?\d[\d.]*e[+-]?\d+$|(true|false|null|undefined|NaN|-?Infinity)$|[\[{<]|\w+( \[|\(\d*\) [\[{]| \{)"
)
_PYTHON_OBJECT = re.compile(r"[A-Za-z_][\w.]*[(\[{]|[<{\[(]|(nan|inf|-inf|NaT|<NA>)$")
_DIGITS = re.compile(r"\d\.\d{7}|\d\.\d+[eE]-?\d")  # nobody works these out by reading
_FRACTION = re.compile(r"(?<![\w.])\d+\.\d{3,}[1-9]0*(?![\w.])")
_MOST_FRACTIONS = 1  # of four decimals or more that the code does not hold
_BARE_CLASS = re.compile(
    r"\btype\((?:[^()\n]|\([^()\n]*\))*\)(?!\.)[^\n]*\Z"
)  # IPython shows `int`, Python `<class 'int'>`
_LONG_INTEGER = re.compile(r"(?<![\w.])\d{13,}(?![\w.])")  # nor these
_NO_ATTRIBUTE = re.compile(r"has no attribute '(\w+)'")
_LAYOUT = re.compile(r"^[^\n]*[\[{(]$", re.MULTILINE)  # Node breaks the lines of what it prints by their width


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per execution whose output can be told from its code, with all its context quoted."""
    for session in evidence.sessions:
        for row in session:
            output = recorded_output(row)
            if row["outcome"] != "ok" or row["stderr"].strip() or not 0 < len(output) <= recipe.max_output_chars:
                continue
            context = evidence.context(row["execution_id"])
            pieces = quotable(context, recipe.context_chars)
            if not context.complete or len(pieces) < len(context.pieces) or not has_substance(row["code"]):
                continue
            code = without_assertions(row["code"], row["language"])
            if tells(comments(code, row["language"]), output):
                code = bare(code, row["language"])
            code = without_trailing_spaces(code.strip("\n"), row["language"])
            earlier = [without_trailing_spaces(piece.text, row["language"]) for piece in pieces]
            listed = [without_comments(part, row["language"]) for part in [*earlier, code]]
            if not is_derivable(listed, output, row["language"]):
                continue
            whole = "\n".join([*earlier, code])
            yield ExampleCandidate(
                kind="predict",
                language=row["language"],
                prompt=prompts.predict(row["language"], code, earlier),
                answer=output,
                execution_ids=(row["execution_id"], *(piece.row["execution_id"] for piece in pieces)),
                duplicate_key=structural_key(whole, row["language"]),
                difficulty=difficulty(whole, row["language"], 0, [], recipe.difficulty),
                quality=mean_quality([row]),
                proof=output,
                lacking=UNQUOTED if may_be_unquoted(row) else None,
            )


def without_assertions(code: str, language: str) -> str:
    """A program without its top-level checks, which may tell its output."""
    if language in JAVASCRIPT:
        return javascript_source.without_assertions(code)
    return python_source.without_assertions(code) if language == "python" else code


def bare(code: str, language: str) -> str:
    """Remove comments, and the blank lines that remain."""
    return without_gaps(without_comments(code, language))


def tells(remarks: Iterable[str], output: str) -> bool:
    """Whether comments contain a line of an output, as in `print(f(5))  # expected: 4`."""
    said = "\n".join(remarks)
    lines = {line.strip() for line in output.split("\n")} - {""}
    return any(re.search(rf"(?<![\w.]){re.escape(line)}(?![\w.]*\w)", said) for line in lines)


def may_be_unquoted(row: Row) -> bool:
    """Whether the last value of a cell may be a text, which is recorded without the quotes that a reader sees."""
    shown = (row["result_text"] or "").strip()
    if not shown or row["language"] == "sql":
        return False
    if row["language"] in JAVASCRIPT:
        return not _JAVASCRIPT_VALUE.match(shown)
    try:
        ast.literal_eval(shown)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return "\n" not in shown and not _PYTHON_OBJECT.match(shown)
    return False


def is_derivable(code: Iterable[str], output: str, language: str = "python") -> bool:
    """Whether a reader of `code` (the cell and its dependencies) can infer `output` from the texts alone.

    Not from a clock, chance (seeded or not), fitted or searched numbers, bins that a library chose, the machine or an
    address; nor seven digits of a fraction, several long fractions, classes as IPython shows them, or where Node breaks
    the lines of a value. That it comes out every time is not judged here: it is executed again.
    """
    if _DIGITS.search(output) or (language in JAVASCRIPT and _LAYOUT.search(output)) or _UNTELLING.search(output):
        return False
    listed = list(code)
    whole = "\n".join(listed)
    if sum(number not in whole for number in _FRACTION.findall(output)) > _MOST_FRACTIONS:
        return False
    if language == "python" and "<class" not in output and _BARE_CLASS.search(listed[-1].rstrip()):
        return False
    missing = [*_LONG_INTEGER.findall(output), *_NO_ATTRIBUTE.findall(output)]  # of a library's own code
    return not _UNKNOWABLE.search(whole) and all(name in whole for name in missing)


def of_library(error_name: str, code: str, language: str) -> bool:
    """Whether an error's class is neither Python's nor the code's own, but a library's, which words it by version."""
    name = error_name.rpartition(".")[2]
    return language == "python" and name not in BUILTINS and re.search(rf"\bclass {re.escape(name)}\b", code) is None


def errors(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """*predict* candidates of the debug domain: failing code with its full context -> the error it raises."""
    for execution_id in sorted(set(evidence.repairs["failing_execution_id"])):
        row = evidence.rows.get(execution_id)
        if row is None or row["outcome"] != "error" or not row["error_name"]:
            continue
        context = evidence.context(execution_id)
        pieces = quotable(context, recipe.context_chars)
        answer = error_text(row["error_name"], row["error_value"], row["traceback"], row["language"], row["code"])
        if not context.complete or len(pieces) < len(context.pieces) or len(answer) > recipe.max_output_chars:
            continue
        language, code, earlier = row["language"], row["code"].strip("\n"), [piece.text for piece in pieces]
        shown = [without_comments(part, language) for part in [*earlier, code]]
        if not is_derivable(shown, answer) or of_library(row["error_name"], "\n".join(shown), language):
            continue
        yield ExampleCandidate(
            kind="predict",
            language=language,
            prompt=prompts.predict_error(language, code, earlier),
            answer=answer,
            execution_ids=(execution_id, *(piece.row["execution_id"] for piece in pieces)),
            duplicate_key=structural_key("\n".join([*earlier, code]), language),
            difficulty=difficulty(code, language, 0, [row["error_name"]], recipe.difficulty),
            quality=mean_quality([row]),
            proof=answer,
        )
