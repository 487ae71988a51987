"""*predict* examples: code with all the earlier code that it needs -> the recorded output.

These are candidates: `examples.build_dataset` keeps those that gave the same output when they were executed again.
"""

import re
from collections.abc import Iterable, Iterator

from capibara_assets.datasets.code.python_source import without_assertions
from capibara_assets.datasets.code.structure import structural_key, without_comments
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, has_substance, mean_quality, quotable
from capibara_assets.datasets.kinds.proof import recorded_output
from capibara_assets.datasets.recipe import DatasetRecipe

_SOURCE = re.compile(
    r"""\b(time|datetime\.(now|utcnow|today)|date\.today|perf_counter|monotonic|random|randn?|randint|shuffle|seed|manual_seed|
    uuid\d?|secrets|environ|getenv|getpid|getcwd|platform|input|open|read_(csv|excel|json|html|parquet|pickle|sql\w*)|
    urlopen|urlretrieve|requests|httpx|aiohttp|socket|socketserver|http\.(server|client)|HTTPServer|xmlrpc|fetch\w*|load_\w+|make_(blobs|moons|circles|classification|regression)|
    glob|listdir|walk|subprocess|system|psutil|memory_usage|getsizeof|sleep|threading|multiprocessing|version\w*|__version__|
    download\w*|from_pretrained|Image|show|tqdm|performance|process|nextTick|setTimeout|setInterval|setImmediate|
    Anthropic|OpenAI|client\.(messages|beta|completions|chat)|CURRENT_(DATE|TIME|TIMESTAMP)|now|julianday|fit|train\w*)\b
    |\bid\(|\bhash\(|\bvars\(|\bdir\(|\bhelp\(|Math\.random|new\s+Date|Date\.now|Date\(\)|'now'|RANDOM\(|^[ \t]*[%!]
    |connect\((?!\s*["']:memory:)""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_OUTPUT = re.compile(
    r"""0x[0-9a-fA-F]{4,}|\bobject\ at\b|<[\w.]+\ object|<Figure|<Axes|<IPython|\[object\ |/(tmp|home|usr|root|Users)/|
    \b\d+(\.\d+)?\s?(ms|µs|us|ns|seconds|secs?)\b|\{\s*'[^':{}]*'\s*(,\s*'[^':{}]*'\s*)*\}
    |Warning:|<generator|<coroutine|<function""",
    re.VERBOSE,
)


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per execution whose output is deterministic, and whose context is complete and quoted in full."""
    for session in evidence.sessions:
        for row in session:
            output = recorded_output(row)
            if row["outcome"] != "ok" or row["stderr"].strip() or not 0 < len(output) <= recipe.max_output_chars:
                continue
            context = evidence.context(row["execution_id"])
            pieces = quotable(context, recipe.context_chars)
            if not context.complete or len(pieces) < len(context.pieces) or not has_substance(row["code"]):
                continue
            code = without_assertions(row["code"]) if row["language"] == "python" else row["code"]
            code, earlier = code.strip("\n"), [piece.text for piece in pieces]
            if not is_deterministic([without_comments(part, row["language"]) for part in [*earlier, code]], output):
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
            )


def is_deterministic(code: Iterable[str], output: str) -> bool:
    """Whether running `code` (the cell and all it needs) gives `output` every time, judged by the texts alone.

    Conservative: any sign of a clock, randomness, address, file, network or environment is a no.
    """
    return not _OUTPUT.search(output) and not any(_SOURCE.search(cell) for cell in code)
