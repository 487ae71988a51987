"""Every Python that the project names: one list of versions, pins that resolve for each, no known breakage."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from capibara_assets.executions.parsing import descend, python_nodes, python_tree
from capibara_assets.executions.patterns.forms_python import flatten

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CANDIDATES = [f"3.{minor}" for minor in range(8, 30)]
VERSIONS = [version for version in CANDIDATES if SpecifierSet(PROJECT["requires-python"]).contains(f"{version}.5")]
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
#: Published as source alone. rouge-score is Python; DeepSpeed compiles its operators when they are first used.
WITHOUT_WHEEL = {"deepspeed", "rouge-score"}
MACHINE = "x86_64-manylinux_2_36"  # Debian 12, on which CI runs


def makefile(name: str) -> str:
    found = re.search(rf"^{name} [?:]?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, name
    return found[1]


# --- one list of versions ---------------------------------------------------------------------------------------------


def test_classifiers_name_the_versions_of_requires_python():
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    assert [match[1] for match in named if match] == VERSIONS


def test_linters_check_for_the_oldest_version():
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{OLDEST.replace('.', '')}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == OLDEST


def test_readme_names_the_versions():
    assert f"Python {OLDEST} to {NEWEST}" in (ROOT / "README.md").read_text()


def test_the_image_is_made_for_the_version_of_the_pins():
    pinned = re.search(r"made for Python (3\.\d+)", (ROOT / "constraints.txt").read_text())
    assert pinned and pinned[1] in VERSIONS
    assert f"ARG PYTHON={pinned[1]}-slim" in (ROOT / "deploy/docker/Dockerfile").read_text()
    assert makefile("PYTHONS").split()[0] == f"python{pinned[1]}"


def test_make_looks_for_every_version():
    assert makefile("PYTHONS").split() == [*(f"python{version}" for version in VERSIONS), "python3"]
    assert f"Python {OLDEST} to {NEWEST}" in makefile("NO_PYTHON")


@pytest.mark.parametrize("version", CANDIDATES)
def test_make_accepts_these_versions_and_no_others(version: str):
    pretended = f"import sys; sys.version_info = ({version.replace('.', ', ')}, 5); {makefile('FITS')}"
    assert (subprocess.run([sys.executable, "-c", pretended]).returncode == 0) == (version in VERSIONS)


# --- what make finds --------------------------------------------------------------------------------------------------


def interpreters(folder: Path, **fits: bool) -> dict[str, str]:
    """The environment of a machine on which these interpreters, and no others, start and fit or do not."""
    for name, fit in fits.items():
        program = folder / name.replace("_", ".")
        program.write_text(f"#!/bin/sh\nexit {0 if fit else 127}\n")
        program.chmod(0o755)
    (folder / "sh").symlink_to("/bin/sh")
    return {"PATH": str(folder)}


def make(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    if program is None:
        pytest.skip("make is not installed")
    (folder / "bare").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / "bare")
    (folder / "bare/show.mk").write_text("include Makefile\n$(info $(PYTHON))\nshow:\n\t@:\n")
    command = [program, "-C", str(folder / "bare"), "--no-print-directory", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


SHOW = ("-f", "show.mk", "show")


def test_make_takes_the_version_of_the_pins_first(tmp_path: Path):
    machine = interpreters(tmp_path, python3_11=True, python3_14=True, python3=True)
    assert make(tmp_path, machine, *SHOW).stdout.strip() == f"{tmp_path}/python3.11"


def test_make_passes_over_an_interpreter_that_does_not_start(tmp_path: Path):
    machine = interpreters(tmp_path, python3_11=False, python3_12=False, python3_13=True, python3=True)
    assert make(tmp_path, machine, *SHOW).stdout.strip() == f"{tmp_path}/python3.13"


def test_make_takes_what_it_is_given(tmp_path: Path):
    machine = interpreters(tmp_path, python3_11=True)
    assert make(tmp_path, machine, "PYTHON=/my/python", *SHOW).stdout.strip() == "/my/python"


@pytest.mark.parametrize("target", ["setup", "bench-env"])
def test_make_says_in_one_line_how_to_get_an_interpreter(tmp_path: Path, target: str):
    done = make(tmp_path, interpreters(tmp_path, python3_11=False, python3=False), target)
    assert done.returncode == 2
    line, *rest = done.stderr.strip().split("\n")
    assert line == makefile("NO_PYTHON")
    assert len(rest) == 1 and rest[0].startswith("make: ***")


# --- code that would behave differently -------------------------------------------------------------------------------


def parsed(pattern: str) -> Iterator[tuple[Path, ast.Module]]:
    """Modules of the package whose text has a match: reading all of them as trees takes seconds."""
    for path in sorted((ROOT / "capibara_assets").rglob("*.py")):
        if re.search(pattern, text := path.read_text()):
            yield path, ast.parse(text)


def test_processes_are_started_by_a_method_that_is_named():
    """Python 3.14 starts them from a fork server where 3.11 forks."""
    unnamed = []
    for path, tree in parsed(r"multiprocessing|\bmp\b|get_context|ProcessPoolExecutor"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            by_default = re.fullmatch(r"(multiprocessing|mp)\.(Process|Pool|Queue|SimpleQueue|Manager|Pipe)", called)
            no_method = called == "get_context" and not node.args
            pool = called.endswith("ProcessPoolExecutor") and len(node.args) < 2
            if by_default or no_method or (pool and not any(given.arg == "mp_context" for given in node.keywords)):
                unnamed.append(f"{path.relative_to(ROOT)}:{node.lineno}: {called}")
    assert not unnamed


GONE = """aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap msilib nis nntplib
    ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib"""


def test_no_module_is_imported_that_a_later_python_has_not():
    used = []
    for path, tree in parsed(rf"\bimport\b.*\b({'|'.join(GONE.split())})\b|\bfrom ({'|'.join(GONE.split())})\b"):
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            used += [f"{path.relative_to(ROOT)}: {name}" for name in names if name.partition(".")[0] in GONE.split()]
    assert not used


def test_parsing_recorded_code_says_nothing(recwarn: pytest.WarningsRecorder):
    """Invalid escapes are shown by default since Python 3.12, `1or 2` in all versions."""
    assert python_tree(r"pattern = '\d+'") is not None
    assert python_tree("x = 1or 2") is not None
    assert not recwarn.list


def test_a_definition_has_the_same_form_in_every_version():
    """Python 3.12 gave definitions a list of type parameters; keys of patterns must not tell versions apart."""
    tree = ast.parse("def double(x):\n    return x * 2\nclass Box:\n    pass")
    assert " ".join(flatten(tree).tokens) == (
        "Module ( FunctionDef double arguments ( ) ( arg x - ) - ( ) ( ) - ( ) ( Return BinOp Mult Name x 2 ) ( ) - "
        "ClassDef Box ( ) ( ) ( Pass ) ( ) )"
    )


@pytest.mark.skipif(sys.version_info < (3, 14), reason="template strings came with Python 3.14")
def test_template_strings_are_walked():
    code = "page = t'<p>{name!r:>{width}}</p>'"
    assert {node.id for node in descend(ast.parse(code)) if isinstance(node, ast.Name)} == {"page", "name", "width"}
    assert len(python_nodes(code)[ast.Name]) == 3
    assert flatten(ast.parse(code)).tokens


# --- the pins ---------------------------------------------------------------------------------------------------------


def resolved(version: str, folder: Path) -> list[dict]:
    """What the pins resolve to for a version of Python, all extras included, with the files of each distribution."""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        pytest.skip("uv is not installed: `make setup` installs it")
    common = [uv, "pip", "compile", "--no-header", "--quiet", "--cache-dir", str(folder / "cache")]
    probe = subprocess.run([*common, "-"], input="six==1.17.0", capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no package registry answers: {probe.stderr.strip().splitlines()[-1][:200]}")
    lock = folder / "pylock.toml"
    target = ["--python-version", version, "--python-platform", MACHINE, "--all-extras", "--format", "pylock.toml"]
    done = subprocess.run(
        [*common, *target, "--constraints", "constraints.txt", "--output-file", str(lock), "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return tomllib.loads(lock.read_text())["packages"]


def fits(wheel: str, version: str) -> bool:
    """Whether a wheel can be installed on such a machine with this Python; uv has already chosen among platforms."""
    minor = int(version.partition(".")[2])
    for tag in parse_wheel_filename(wheel)[3]:
        if tag.platform != "any" and not re.fullmatch(r"(many)?linux\w*_x86_64", tag.platform):
            continue
        least = re.fullmatch(r"(?:cp|py)3(\d*)", tag.interpreter)
        if least is None:
            continue
        exact = tag.interpreter == f"cp3{minor}" and tag.abi in (f"cp3{minor}", "none")
        later = tag.abi == "abi3" or (tag.abi == "none" and tag.interpreter.startswith("py"))
        if exact or (later and int(least[1] or 0) <= minor):
            return True
    return False


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_pin_has_a_wheel_for(version: str, tmp_path: Path):
    packages = resolved(version, tmp_path)
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pins = {re.sub(r"[-_.]+", "-", name).lower(): pin for name, pin in pins.items()}
    other = {
        each["name"]: each["version"] for each in packages if pins.get(each["name"], each["version"]) != each["version"]
    }
    assert not other
    assert {"torch", "dagster", "deepspeed", "jax", "e2b-code-interpreter"} <= {each["name"] for each in packages}
    without = set()
    for each in packages:
        wheels = [(wheel.get("name") or wheel["url"].rpartition("/")[2]) for wheel in each.get("wheels", ())]
        if not any(fits(wheel, version) for wheel in wheels):
            without.add(each["name"])
    assert without == WITHOUT_WHEEL
