"""Whether an answer uses a library that nothing in its prompt names: another would do, and a test may take only it."""

import ast
import sys

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.executions.parsing import walk

UNNAMED = "its answer uses a library that its prompt does not name"

_CUSTOMARY = frozenset(["numpy", "pandas", "matplotlib", "seaborn", "scipy", "sklearn", "requests", "IPython"])
#: What else names a library: the words of prose for it, and the library that brings it along.
_NAMED_BY = {
    "PIL": ("pillow", "image"), "bs4": ("beautiful", "html"), "cv2": ("opencv", "image"), "yaml": ("yml",),
    "dateutil": ("date",), "dotenv": (".env",), "jose": ("jwt",), "anyio": ("fastapi", "starlette", "async"),
    "pydantic": ("fastapi",), "starlette": ("fastapi",), "google": ("gemini",), "sentence_transformers": ("embedding",),
}  # fmt: skip


def unnamed_library(candidate: ExampleCandidate) -> str | None:
    """`UNNAMED` where Python imports a library that is neither named, customary, nor part of the language."""
    told = candidate.prompt.lower()
    for name in _imported(candidate.answer):
        if name in sys.stdlib_module_names or name in _CUSTOMARY or name.lower() in told:
            continue
        if not any(word in told for word in _NAMED_BY.get(name, ())):
            return UNNAMED
    return None


def _imported(code: str) -> set[str]:
    names: set[str] = set()
    for node in walk(python_source.parse(code) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
