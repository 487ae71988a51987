"""The pre-training corpus: permissively licensed Python that every machine has, and JavaScript and SQL of our own."""

from __future__ import annotations

import ast
import hashlib
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from importlib import metadata
from pathlib import Path
from random import Random
from typing import cast

from workshop.base_model.javascript import javascript_exchange, javascript_program
from workshop.base_model.sql import sql_exchange, sql_script
from workshop.base_model.tokenizer import SPECIAL_TOKENS, render_chat

LANGUAGES = ("python", "javascript", "sql", "chat")
PERMISSIVE = frozenset({"MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Apache-2.0", "Zlib", "CC0-1.0"})
STANDARD_LIBRARY_LICENCE = "PSF-2.0"
GENERATED_LICENCE = "MIT"

#: Packages whose code resembles what the expert domains work on; each is used where it is installed and permissive.
PYTHON_PACKAGES = (
    "accelerate", "aiohttp", "alembic", "anyio", "click", "dagster", "dagster-shared", "fastapi", "flask", "fsspec",
    "h11", "hpack", "httpcore", "httpx", "httpx2", "huggingface-hub", "jinja2", "joblib", "networkx", "numpy",
    "oauthlib", "packaging", "pandas", "peft", "pydantic", "pygments", "requests", "rich", "scikit-learn", "scipy",
    "setuptools", "sqlalchemy", "sqlglot", "starlette", "tornado", "transformers", "typer", "urllib3", "uvicorn",
    "websockets", "werkzeug",
)  # fmt: skip
JAVASCRIPT_PACKAGES = ("playwright",)
_PACKAGE_BYTES = 2_000_000  # at most this much of one package, so that none rules the style
_SMALLEST, _LARGEST = 200, 120_000  # bytes of a file worth reading: neither empty __init__ nor generated tables
_VENDORED = {"_vendor", "third_party", "node_modules"}  # other people's code under other licences
_HELD_OUT = 50  # one document in so many is held out


@dataclass(frozen=True)
class Document:
    """One text with the language it is scored under and the source that it comes from."""

    language: str
    source: str
    text: str

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.text.encode()).digest()

    @property
    def held_out(self) -> bool:
        """Whether the text belongs to the evaluation split: a matter of its content alone."""
        return int.from_bytes(self.digest[:8], "big") % _HELD_OUT == 0


@dataclass(frozen=True)
class Source:
    """Where documents come from, for the model card."""

    name: str
    version: str
    licence: str
    language: str
    documents: int
    bytes: int


@dataclass(frozen=True)
class Corpus:
    """Training and held-out documents in a fixed order, and what they were made from."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    sources: tuple[Source, ...]

    @property
    def languages(self) -> tuple[str, ...]:
        """What its documents are scored under: `LANGUAGES`, then others."""
        return tuple(dict.fromkeys((*LANGUAGES, *(document.language for document in self.training))))


def permissive_licence(package: Message) -> str | None:
    """The licence that a distribution's metadata declares if it is permissive (MIT, BSD, Apache and the like)."""
    expression = package.get("License-Expression")
    if expression:
        parts = re.split(r"\s+(?:AND|OR)\s+", expression.replace("(", "").replace(")", ""))
        return str(expression) if all(part in PERMISSIVE for part in parts) else None
    declared = [
        line.rsplit(" :: ", 1)[1] for line in package.get_all("Classifier") or () if line.startswith("License :: OSI")
    ]
    if declared:
        known = {"MIT License": "MIT", "BSD License": "BSD", "Apache Software License": "Apache-2.0"}
        return " AND ".join(known[name] for name in declared) if all(name in known for name in declared) else None
    licence = str(package.get("License") or "").strip().splitlines()[:1]
    forms = {
        "MIT": r"(the )?mit( license)?",
        "BSD": r"(new |modified )?bsd([ -][23]-clause)?( license)?",
        "Apache-2.0": r"apache([ -](software )?(license )?(version |v)?2(\.0)?)?( license)?(, version 2\.0)?",
    }
    for name, form in forms.items():
        if licence and re.fullmatch(form, licence[0].strip(), re.IGNORECASE):
            return name
    return None


def _read(path: Path) -> str | None:
    """The file's text without its licence header, or None where it is no UTF-8 text of a useful size."""
    raw = path.read_bytes()
    if not _SMALLEST <= len(raw) <= _LARGEST:
        return None
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n").lstrip("\ufeff")
    except UnicodeDecodeError:
        return None
    if any(token in text for token in SPECIAL_TOKENS):
        return None
    header = re.match(r"(?:#.*\n|\s*\n)+|/\*.*?\*/\s*", text, re.DOTALL if text.startswith("/*") else 0)
    if header and re.search("licen[cs]e|copyright", header.group(), re.IGNORECASE):
        text = text[header.end() :]
    return text if len(text) >= _SMALLEST else None


def _is_test(relative: Path) -> bool:
    return any(part in ("test", "tests", "idle_test", "testing") for part in relative.parts)


def standard_library(tests: bool) -> Iterator[Document]:
    """The running interpreter's library, its tests or all the rest, in the order of the paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if {"site-packages", "lib2to3", "__pycache__"} & set(relative.parts) or _is_test(relative) != tests:
            continue
        if path.name.startswith("_sysconfigdata") or {"encodings", "pydoc_data"} & set(relative.parts):
            continue
        if text := _read(path):
            yield Document("python", "python-standard-library-tests" if tests else "python-standard-library", text)


def _is_handwritten(text: str) -> bool:
    """Whether JavaScript looks like source rather than a minified bundle."""
    lines = text.splitlines()
    return max(map(len, lines)) < 400 and len(text) / len(lines) < 60


def package_documents(name: str, suffix: str, language: str) -> tuple[list[Document], Source | None]:
    """Files of an installed distribution up to a cap, by digest; nothing where it is absent or not permissive."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return [], None
    licence = permissive_licence(cast(Message, distribution.metadata))
    if licence is None:
        return [], None
    found = []
    for file in distribution.files or ():
        relative = Path(str(file))
        if relative.suffix != suffix or _is_test(relative) or _VENDORED & set(relative.parts):
            continue
        path = Path(str(distribution.locate_file(file)))
        text = _read(path) if path.is_file() else None
        if text and (language != "javascript" or _is_handwritten(text)):
            found.append(Document(language, name, text))
    kept: list[Document] = []
    total = 0
    for document in sorted(found, key=lambda document: document.digest):
        if total + len(document.text) <= _PACKAGE_BYTES * (2 if language == "javascript" else 1):
            kept.append(document)
            total += len(document.text)
    return kept, Source(name, distribution.version, licence, language, len(kept), total)


def documented_functions(source: str) -> Iterator[tuple[str, str]]:
    """(first paragraph of the docstring, function without docstring) pairs of a module's documented functions."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    lines = source.splitlines()
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef) or len(node.body) < 2 or node.decorator_list:
            continue
        docstring = ast.get_docstring(node)
        if not docstring or node.end_lineno is None or node.col_offset not in (0, 4):
            continue
        first, then = node.body[0], node.body[1]
        if first.lineno == node.lineno or first.end_lineno is None or then.lineno <= first.end_lineno:
            continue
        kept = lines[node.lineno - 1 : first.lineno - 1] + lines[first.end_lineno : node.end_lineno]
        code = "\n".join(line[node.col_offset :] for line in kept)
        said = " ".join(docstring.split("\n\n")[0].split())
        if 20 <= len(said) <= 300 and 60 <= len(code) <= 1500:
            yield said, code


_SYSTEM = (
    "You are a careful programmer. Answer with code.",
    "You write short, correct programs.",
    "You are an expert in {language}. Reply with code only.",
)


def _conversation(rng: Random, request: str, code: str, language: str) -> str:
    answer = f"```{language}\n{code}\n```" if rng.random() < 0.4 else code
    messages = [("user", request), ("assistant", answer)]
    if rng.random() < 0.5:
        messages.insert(0, ("system", rng.choice(_SYSTEM).format(language=language)))
    return render_chat(messages)


def chat_documents(python: Iterable[Document], rng: Random) -> Iterator[Document]:
    """Conversations without end: documented functions of ``python`` (each once) between generated exchanges."""
    pairs = dict(pair for document in python for pair in documented_functions(document.text))
    asked = sorted(pairs.items())
    rng.shuffle(asked)
    functions = iter(asked)
    while True:
        pick = rng.random()
        if pick < 0.6:
            pair = next(functions, None)
            if pair is None:
                return
            said, code = pair
            name = code.split("(", 1)[0].removeprefix("def ").strip()
            request = rng.choice((said, f"Write a Python function. {said}", f"Write the function `{name}`: {said}"))
            yield Document("chat", "documented-functions", _conversation(rng, request, code, "python"))
        elif pick < 0.8:
            request, code = javascript_exchange(rng)
            yield Document("chat", "generated-javascript", _conversation(rng, request, code, "javascript"))
        else:
            request, code = sql_exchange(rng)
            yield Document("chat", "generated-sql", _conversation(rng, request, code, "sql"))


def _endless(make: Callable[[Random], str], rng: Random, language: str, source: str) -> Iterator[Document]:
    while True:
        yield Document(language, source, make(rng))


def take(documents: Iterable[Document], size: int, seen: set[bytes]) -> list[Document]:
    """Documents not ``seen`` before (by digest), until they make ``size`` bytes together."""
    taken: list[Document] = []
    total = 0
    for document in documents:
        if total >= size:
            break
        if document.digest not in seen:
            seen.add(document.digest)
            taken.append(document)
            total += len(document.text.encode())
    return taken


def _by_digest(documents: Iterable[Document]) -> list[Document]:
    return sorted(documents, key=lambda document: document.digest)


def build_corpus(size: int, seed: int, packages: Sequence[str] = PYTHON_PACKAGES) -> Corpus:
    """Collect about ``size`` bytes: 75 % Python, 12 % JavaScript, 8 % SQL, 5 % conversations.

    The same interpreter, packages, size and seed give the same documents in the same order.
    """
    seen: set[bytes] = set()
    # The library's tests show many calls but one style: a fifth of the Python at most.
    tests = take(_by_digest(standard_library(tests=True)), int(size * 0.15), seen)
    python = take(standard_library(tests=False), int(size * 0.25), seen)
    versions: dict[tuple[str, str], tuple[str, str]] = {}
    packaged: list[Document] = []
    for name in packages:
        documents, source = package_documents(name, ".py", "python")
        packaged += documents
        if source:
            versions[name, "python"] = (source.version, source.licence)
    rest = int(size * 0.75) - sum(len(document.text) for document in (*python, *tests))
    python += tests + take(_by_digest(packaged), rest, seen)

    shipped: list[Document] = []
    for name in JAVASCRIPT_PACKAGES:
        documents, source = package_documents(name, ".js", "javascript")
        shipped += documents
        if source:
            versions[name, "javascript"] = (source.version, source.licence)
    javascript = take(_by_digest(shipped), int(size * 0.04), seen)
    rest = int(size * 0.12) - sum(len(document.text) for document in javascript)
    programs = _endless(javascript_program, Random(f"{seed}-javascript"), "javascript", "generated-javascript")
    javascript += take(programs, rest, seen)
    scripts = _endless(sql_script, Random(f"{seed}-sql"), "sql", "generated-sql")
    sql = take(scripts, int(size * 0.08), seen)
    # Only documents that are trained on lend their functions, lest the hold-out leak into the conversations.
    lenders = [
        document for document in python if not document.held_out and document.source != "python-standard-library-tests"
    ]
    chat = take(chat_documents(lenders, Random(f"{seed}-chat")), int(size * 0.05), seen)

    return corpus_of([*python, *javascript, *sql, *chat], seed, versions)


def corpus_of(documents: Sequence[Document], seed: int, versions: dict[tuple[str, str], tuple[str, str]]) -> Corpus:
    """The documents in an order that the seed decides; `versions`: (version, licence) by (source, language)."""
    order = _by_digest(documents)
    Random(f"{seed}-order").shuffle(order)
    return Corpus(
        tuple(document for document in order if not document.held_out),
        tuple(document for document in order if document.held_out),
        _sources(documents, versions),
    )


def _sources(documents: Iterable[Document], versions: dict[tuple[str, str], tuple[str, str]]) -> tuple[Source, ...]:
    counts: dict[tuple[str, str], list[int]] = {}
    for document in documents:
        entry = counts.setdefault((document.source, document.language), [0, 0])
        entry[0] += 1
        entry[1] += len(document.text.encode())
    interpreter = sysconfig.get_python_version()
    rows = []
    for (name, language), (number, size) in sorted(counts.items()):
        if name.startswith("python-standard-library"):
            version, licence = interpreter, STANDARD_LIBRARY_LICENCE
        elif name == "documented-functions":
            version, licence = "", "as the Python sources"
        else:
            version, licence = versions.get((name, language), ("", GENERATED_LICENCE))
        rows.append(Source(name, version, licence, language, number, size))
    return tuple(rows)
