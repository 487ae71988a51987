"""Which recorded outputs follow from the code alone: no clock, chance, address, file, network or environment."""

import re
from collections.abc import Iterable

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


def is_deterministic(code: Iterable[str], output: str) -> bool:
    """Whether running `code` (the cell and all it needs) gives `output` every time, as far as its text tells.

    A conservative reading: `datasets` asks this only of outputs that become the answer of a *predict* example.
    """
    return not _OUTPUT.search(output) and not any(_SOURCE.search(cell) for cell in code)
