"""What an answer uses and nothing in its prompt names: libraries of Python, and SQLite. Others would do too."""

import ast
import re
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

#: Functions of dates that no other database has in this form.
_SQLITE = re.compile(
    r"""\bstrftime\s*\(\s*'%|\bjulianday\s*\(|\bdate(?:time)?\s*\(\s*'now'|"""
    r"""\bdate(?:time)?\s*\([^()]*,\s*'(?:[-+]?\d+ (?:day|month|year|hour)s?|start of (?:day|month|year))'""",
    re.IGNORECASE,
)


def unnamed_libraries(answer: str, prompt: str, language: str) -> list[str]:
    """The packages that Python imports and that are neither named, customary, nor part of the language, sorted.

    Of SQL it is SQLite, where its functions show that the query ran there.
    """
    told = prompt.lower()
    if language == "sql":
        return ["SQLite"] if _SQLITE.search(answer) and "sqlite" not in told else []
    if language != "python":
        return []
    return [
        name
        for name in sorted(imported(answer) - _CUSTOMARY - sys.stdlib_module_names)
        if not any(word in told for word in (name.lower(), *_NAMED_BY.get(name, ())))
    ]


def imported(code: str) -> set[str]:
    """The packages that Python imports, relative imports aside."""
    names: set[str] = set()
    for node in walk(python_source.parse(code) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
