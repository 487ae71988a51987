"""README, CONTRIBUTING and the guides name what exists: files, modules, commands and their options, benches, links."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from benchmarks.command import benches
from capibara_assets.cli.main import cli

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("capibara_assets", "capibara_assets_tests", "benchmarks", "workshop")
# Decisions tell of their time, and may name what has left since.
DOCUMENTS = sorted(
    path
    for path in (
        ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy" / "README.md", *(ROOT / "docs").glob("**/*.md")
    )
    if path.is_file() and path.parent.name != "decisions"
)  # fmt: skip

FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)
FILE = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
MODULE = re.compile(rf"\b(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+")
COMMAND = re.compile(r"(?:^|[;&|(=]\s*|\s)capibara\s+([a-z][^\n#;|)]*)")
BENCH = re.compile(r"python -m benchmarks\s+([a-z][^\n#;|)]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


@cache
def tracked() -> frozenset[str]:
    """Files of the repository, and their folders with a slash at the end."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    folders = {f"{parent}/" for name in files for parent in Path(name).parents if str(parent) != "."}
    return frozenset(files) | folders


def code_of(text: str) -> Iterator[str]:
    """Code blocks, lines continued by a backslash joined, and code spans."""
    for block in FENCE.findall(text):
        yield re.sub(r"\\\n\s*", " ", block)
    yield from SPAN.findall(FENCE.sub("", text))


def named_files(text: str) -> Iterator[str]:
    """Names in code that can only be files or folders of this repository.

    They begin with one of its folders, or are Python files below a folder of the package (`training/recipe.py`).
    """
    tops = {name.split("/")[0] for name in tracked() if "/" in name}
    inner = {path.name for path in (ROOT / "capibara_assets").iterdir() if path.is_dir()}
    for code in code_of(text):
        for name in FILE.findall(code):
            top = name.split("/")[0]
            if "/" in name.rstrip("/") and (top in tops or (top in inner and name.endswith(".py"))):
                yield name.rstrip(".")


def is_there(name: str) -> bool:
    """Whether a file or folder is in the repository, from its root or below the package; `*` stands for anything."""
    for start in ("", "capibara_assets/"):
        pattern = re.compile(re.escape(start + name.rstrip("/")).replace(r"\*", "[^/]*") + "/?")
        if any(pattern.fullmatch(known) for known in tracked()):
            return True
    return False


def missing_part(dotted: str) -> str | None:
    """The part of a dotted name that is neither a package, a module nor a name defined at its top; None: all are."""
    parts = dotted.split(".")
    place = ROOT / parts[0]
    for index, part in enumerate(parts[1:], 1):
        if (place / part).is_dir():
            place = place / part
            continue
        file = place / f"{part}.py"
        if file.is_file():
            rest = parts[index + 1 :]
        else:
            file, rest = place / "__init__.py", parts[index:]
        return None if not rest or rest[0] in top_names(file) else rest[0]
    return None


@cache
def loggers() -> frozenset[str]:
    """Names of loggers given as text: users have them in their settings, so they outlive the module's place."""
    sources = (path.read_text("utf-8") for path in (ROOT / "capibara_assets").rglob("*.py"))
    return frozenset(name for source in sources for name in re.findall(r'getLogger\("([\w.]+)"\)', source))


@cache
def top_names(file: Path) -> frozenset[str]:
    """Names that a module defines or imports at its top level, and keys of its tables of public names."""
    names: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names)


def words_of(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # half a quotation, such as the one of a table's cell
        return line.split()


def fault_of(root: click.Group, line: str) -> str | None:
    """What a command line names that does not exist: a command, a subcommand, or an option."""
    context, command = click.Context(root), root
    words = words_of(line)
    while isinstance(command, click.Group) and words:
        name = words.pop(0).rstrip(".,:`'")
        if not re.fullmatch(r"[a-z][a-z-]*", name):
            return None  # a placeholder, or several commands (`encrypt|decrypt`)
        found = command.get_command(context, name)
        if found is None:
            return f"{name} is no command"
        command = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for option in OPTION.findall(" ".join(words)):
        if option not in known | {"--help"}:
            return f"{command.name} has no option {option}"
    return lacking(command, words)


TOGETHER = {
    "plan": (("model", "hardware"), ("preset",), ("claims",)),
    "forget": (("execution_ids",), ("tenant",)),
    "head": (("write", "key"), ("public",)),
}
"""Command -> the parameters of which one set has to be given, though each alone is optional."""


def lacking(command: click.Command, words: list[str]) -> str | None:
    """What a command line leaves out that is required; a name alone, or with options alone, is no command line."""
    if isinstance(command, click.Group) or any(re.search(r"\.\.\.|…|\||\[", word) for word in words):
        return None  # `…`, `a|b` and `[--option]` stand for more than they say
    context = click.Context(command, resilient_parsing=True)
    try:
        given, _, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError:
        return None  # an option without its value: the option is named
    given = {name: value for name, value in given.items() if value not in (None, (), []) and "UNSET" not in repr(value)}
    if not any(isinstance(value, (str, list, tuple)) for value in given.values()):
        return None
    lacks = [one.name for one in command.params if one.required and one.name not in given]
    if lacks:
        return f"{command.name} lacks {', '.join(map(str, lacks))}"
    sets = TOGETHER.get(command.name or "", ())
    own = {one.name for one in command.params}  # `python -m benchmarks plan` is another command
    if sets and own >= {name for one in sets for name in one} and not any(given.keys() >= set(one) for one in sets):
        return f"{command.name} lacks {' or '.join(' and '.join(one) for one in sets)}"
    return None


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def document(request: pytest.FixtureRequest) -> tuple[Path, str]:
    path: Path = request.param
    return path, path.read_text("utf-8")


def test_the_guides_are_looked_at() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS}
    assert {"README.md", "deploy/README.md", "docs/training.md", "docs/consensus.md"} <= names


def test_named_files_exist(document: tuple[Path, str]) -> None:
    missing = sorted({name for name in named_files(document[1]) if not is_there(name)})
    assert not missing


def test_named_modules_exist(document: tuple[Path, str]) -> None:
    named = set(MODULE.findall(document[1])) - loggers()
    missing = {name: part for name in sorted(named) if (part := missing_part(name))}
    assert not missing


def test_named_commands_and_options_exist(document: tuple[Path, str]) -> None:
    lines = [(cli, line) for code in code_of(document[1]) for line in COMMAND.findall(code)]
    lines += [(benches, line) for code in code_of(document[1]) for line in BENCH.findall(code)]
    faults = {line: fault for root, line in lines if (fault := fault_of(root, line))}
    assert not faults


def test_links_resolve(document: tuple[Path, str]) -> None:
    path, text = document
    broken = []
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def anchors(file: Path) -> set[str]:
    """The anchors that GitHub gives a document's headings."""
    headings = HEADING.findall(FENCE.sub("", file.read_text("utf-8")))
    plain = (re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`capibara_assets/training/no_such.py`", "file"),
        ("`training/no_such.py`", "file"),
        ("capibara_assets.training.no_such", "module"),
        ("capibara_assets.training.recipe.NoSuch", "module"),
        ("```\ncapibara no-such --json\n```", "command"),
        ("```\ncapibara checkpoint no-such\n```", "command"),
        ("```\ncapibara plan --no-such\n```", "command"),
        ("```\npython -m benchmarks no-such\n```", "command"),
        ("`capibara plan --hardware tpu-v5e-64`", "command"),
        ("`capibara test-model --temperature 0.8`", "command"),
        ("```\ncapibara forget --reason why\n```", "command"),
    ],
)
def test_what_does_not_exist_is_told(text: str, fault: str) -> None:
    document = (ROOT / "README.md", text)
    tests = {
        "file": test_named_files_exist, "module": test_named_modules_exist,
        "command": test_named_commands_and_options_exist,
    }  # fmt: skip
    for kind, test in tests.items():
        if kind == fault:
            with pytest.raises(AssertionError):
                test(document)
        else:
            test(document)


@pytest.mark.parametrize(
    "line",
    [
        "plan --model llama2-7b --hardware tpu-v5e-64", "plan --claims", "plan --hardware", "test-model", "forget",
        "train ... --background", "test-model --model FOLDER --temperature 0.8", "forget ID", "run --domains sql",
    ],
)  # fmt: skip
def test_what_is_whole_or_only_named_lacks_nothing(line: str) -> None:
    assert fault_of(cli, line) is None


def test_a_broken_link_is_told() -> None:
    test_links_resolve((ROOT / "README.md", "[guide](docs/training.md)"))
    for target in ("docs/no-such.md", "docs/training.md#no-such"):
        with pytest.raises(AssertionError):
            test_links_resolve((ROOT / "README.md", f"[guide]({target})"))
