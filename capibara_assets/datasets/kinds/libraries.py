"""Libraries that an answer uses and nothing in its prompt names: the prompt says them, since others would do too."""

import ast
import sys

from capibara_assets.datasets.code import python_source
from capibara_assets.executions.parsing import walk

_CUSTOMARY = frozenset(["numpy", "pandas", "matplotlib", "seaborn", "scipy", "sklearn", "requests", "IPython"])
#: What else names a library: the words of prose for it, and the library that brings it along.
_NAMED_BY = {
    "PIL": ("pillow", "image"), "bs4": ("beautiful", "html"), "cv2": ("opencv", "image"), "yaml": ("yml",),
    "dateutil": ("date",), "dotenv": (".env",), "jose": ("jwt",), "anyio": ("fastapi", "starlette", "async"),
    "pydantic": ("fastapi",), "starlette": ("fastapi",), "google": ("gemini",), "sentence_transformers": ("embedding",),
}  # fmt: skip


def unnamed_libraries(answer: str, prompt: str, language: str) -> list[str]:
    """The packages that Python imports and that are neither named, customary, nor part of the language, sorted."""
    if language != "python":
        return []
    told = prompt.lower()
    return [
        name
        for name in sorted(_imported(answer) - _CUSTOMARY - sys.stdlib_module_names)
        if not any(word in told for word in (name.lower(), *_NAMED_BY.get(name, ())))
    ]


def _imported(code: str) -> set[str]:
    names: set[str] = set()
    for node in walk(python_source.parse(code) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
