"""The images: what their Dockerfile may take in, what their locks hold, and on which pods each of them runs.

No daemon is asked and no image is built: what can be told from the files is held here.
"""

import fnmatch
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"
if not DOCKER.is_dir():
    pytest.skip("deploy/ travels with the repository, not with the wheel", allow_module_level=True)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BAKED = json.loads((DOCKER / "docker-bake.json").read_text())
PROCESSORS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
KINDS = ("cpu", "gpu", "tpu")


def lock_maker():
    spec = util.spec_from_file_location("image_lock", DOCKER / "lock.py")
    assert spec and spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOCK = lock_maker()


class Pin(NamedTuple):
    version: str
    marker: str
    hashes: list[str]


def pins(kind: str) -> dict[str, Pin]:
    found = {}
    for line in (DOCKER / "locks" / f"{kind}.txt").read_text().splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([\w.-]+)==(\S+)( ; [^-]+)?((?: --hash=sha256:[0-9a-f]{64})+)", line)
            assert match, line
            found[canonicalize_name(match[1])] = Pin(match[2], match[3] or "", match[4].split())
    return found


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage: name and arguments; what stands before the first stage is left out."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest.strip()))
    return found


def ignored(path: str) -> bool:
    """Whether the build does not see a path: the last line that fits it, or a folder that holds it, decides."""
    seen = True
    for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = path.split("/")
        ways = ["/".join(parts[: end + 1]) for end in range(len(parts))] + (parts if "**/" in line else [])
        if not line.startswith("#") and any(
            fnmatch.fnmatchcase(way, pattern) for way in ways if "/" not in way or pattern != "*"
        ):
            seen = line.startswith("!")
    return not seen


# --- the Dockerfile ---------------------------------------------------------------------------------------------------


def test_all_that_is_copied_is_there_and_seen_by_the_build() -> None:
    for stage in stages():
        for name, rest in stage:
            if name == "COPY" and not rest.startswith("--from="):
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists() and (source == "." or not ignored(source)), source
            assert name != "ADD"  # it fetches and unpacks


def test_the_build_sees_what_the_wheel_is_made_of_and_nothing_that_is_private() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    wanted = [
        *wheel["packages"],
        *wheel["force-include"],
        "pyproject.toml",
        PROJECT["readme"],
        *PROJECT["license-files"],
    ]
    assert not [path for path in wanted if ignored(path)]
    private = (".env", ".env.production", ".git/config", "key.pem", "capibara_assets_tests/x.py", ".capibara/store/a")
    assert all(map(ignored, (*private, "deploy/k8s/dagster.yaml", "history/a.db", "resources/__pycache__/a.pyc")))


def test_every_install_is_of_the_lock_or_of_the_source_alone() -> None:
    commands = [part for stage in stages() for name, rest in stage if name == "RUN" for part in rest.split("&&")]
    installs = [command for command in commands if re.search(r"\b(pip3?|uv|apt-get|apk|npm|curl|wget)\b", command)]
    kinds = {"--require-hashes": 0, "--no-index": 0, "pip check": 0}
    for command in installs:
        (how,) = [way for way in kinds if way in command]
        assert how == "pip check" or "--no-deps" in command, command
        kinds[how] += 1
    assert kinds == {"--require-hashes": 2, "--no-index": 1, "pip check": 1}


def test_the_image_runs_as_the_user_of_the_pods_and_holds_no_secret() -> None:
    last = stages()[-1]
    names = [name for name, _ in last]
    (user,) = [rest for name, rest in last if name == "USER"]
    assert user == "1000:1000" and "--uid 1000" in dict(last)["RUN"]
    assert max(names.index("RUN"), names.index("COPY")) < names.index("USER") < names.index("CMD")
    for stage in stages():
        for name, rest in stage:
            if name in ("ENV", "ARG"):
                assert not re.search(r"TOKEN|SECRET|PASSWORD|(API|ACCESS|PRIVATE)_?KEY|CREDENTIAL", rest, re.IGNORECASE)
    assert "grpc-health-check" in dict(last)["HEALTHCHECK"] and "capibara_assets.definitions" in dict(last)["CMD"]


def test_what_is_written_goes_where_pods_may_write() -> None:
    environment = " ".join(rest for name, rest in stages()[-1] if name == "ENV")
    assert "HOME=/tmp " in environment and "PYTHONDONTWRITEBYTECODE=1" in environment
    assert "CAPIBARA_HOME=/mnt/capibara" in environment


# --- the locks --------------------------------------------------------------------------------------------------------


def test_there_is_a_lock_for_each_image_and_its_processors() -> None:
    targets = {name: target for name, target in BAKED["target"].items() if name in BAKED["group"]["default"]["targets"]}
    assert tuple(targets) == KINDS
    for kind, target in targets.items():
        assert target["args"]["KIND"] == kind and target["inherits"] == ["image"]
        assert [PROCESSORS[platform] for platform in target["platforms"]] == list(LOCK.MACHINES[kind])
        arguments = {*target["args"], *BAKED["target"]["image"]["args"]}
        told = {rest.partition("=")[0] for name, rest in stages()[0] if name == "ARG"} | {"PYTHON"}
        assert arguments <= told
    assert len({target["tags"][0] for target in targets.values()}) == len(targets)
    assert (ROOT / BAKED["target"]["image"]["dockerfile"]) == DOCKER / "Dockerfile"


@pytest.mark.parametrize("kind", ["build", *KINDS])
def test_locks_have_the_versions_of_the_constraints(kind: str) -> None:
    constraints = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in constraints.items()}
    of_lock = {name: pin.version.removesuffix("+cpu") for name, pin in pins(kind).items()}
    assert of_lock == {name: versions.get(name) for name in of_lock}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_locks_hold_all_that_is_asked_for(kind: str, processor: str) -> None:
    """From the project's requirements on, by what the installed versions, which are the pinned ones, ask for."""
    if processor not in LOCK.MACHINES[kind]:
        pytest.skip(f"there is no {kind} image for {processor}")
    locked, environment = pins(kind), {"platform_machine": processor, "python_version": LOCK.PYTHON}
    environment |= {"python_full_version": f"{LOCK.PYTHON}.9", "sys_platform": "linux", "platform_system": "Linux"}
    extras = PROJECT["optional-dependencies"]
    open_ = [*PROJECT["dependencies"], *(line for extra in LOCK.EXTRAS[kind] for line in extras[extra])]
    seen, unread = set[str](), set[str]()
    while open_:
        wanted = Requirement(open_.pop())
        name = canonicalize_name(wanted.name)
        if wanted.marker and not wanted.marker.evaluate(environment | {"extra": ""}):
            continue
        assert name in locked, f"{wanted} is not in the lock of {kind}"
        assert wanted.specifier.contains(locked[name].version, prereleases=True), wanted
        assert not locked[name].marker or processor in locked[name].marker
        for extra in {"", *wanted.extras}:
            if f"{name}[{extra}]" not in seen:
                seen.add(f"{name}[{extra}]")
                try:
                    of_it = map(Requirement, metadata.requires(name) or ())
                except metadata.PackageNotFoundError:
                    unread.add(name)
                    continue
                for one in of_it:
                    if one.marker is None or one.marker.evaluate(environment | {"extra": extra}):
                        one.marker = None
                        open_.append(str(one))
    assert len(seen) > 100 and unread <= {"triton", "libtpu"}


def test_torch_has_cuda_in_the_image_for_gpus_alone() -> None:
    (torch,) = [line.partition("==")[2] for line in PROJECT["dependencies"] if line.startswith("torch==")]
    for kind in KINDS:
        locked = pins(kind)
        assert locked["torch"].version == (torch if kind == "gpu" else f"{torch}+cpu")
        assert any(name.startswith("nvidia-") for name in locked) == ("triton" in locked) == (kind == "gpu")
    assert "libtpu" in pins("tpu") and "jax" not in pins("cpu")


def test_a_wheel_fits_by_its_tags() -> None:
    fitting = ("a-1-py3-none-any.whl", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "a-1-cp38-abi3-linux_x86_64.whl")
    assert all(LOCK.fits(name, "x86_64") for name in fitting)
    other = (
        "cp312-cp312-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_28_aarch64",
        "cp311-cp311-musllinux_1_2_x86_64",
    )
    assert not any(LOCK.fits(f"a-1-{tag}.whl", "x86_64") for tag in (*other, "cp312-abi3-manylinux_2_28_x86_64"))


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["build", *KINDS])
def test_the_constraints_still_resolve_to_the_lock(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed: `make setup` installs it")
    probe = subprocess.run(["uv", "pip", "compile", "-q", "-"], input="six==1.17.0", capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no package registry answers: {probe.stderr.strip().splitlines()[-1][:200]}")
    made = {line.partition(" ")[0] for line in LOCK.lock(kind).splitlines()}
    assert made == {line.partition(" ")[0] for line in (DOCKER / "locks" / f"{kind}.txt").read_text().splitlines()}
