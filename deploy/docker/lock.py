"""Write locks/*.txt: what each image installs, with the hashes of the files that fit it. `make image-locks`.

The versions are those of constraints.txt; uv resolves them for each kind of image and each of its processors.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).resolve().parent / "locks"
PYTHON = "3.11"
MACHINES = {
    "build": ("x86_64", "aarch64"),
    "cpu": ("x86_64", "aarch64"),
    "gpu": ("x86_64", "aarch64"),
    "tpu": ("x86_64",),
}
EXTRAS = {"cpu": ["gcp", "k8s", "postgres", "ray"]}
EXTRAS["gpu"] = [*EXTRAS["cpu"], "gpu"]
EXTRAS["tpu"] = [*EXTRAS["cpu"], "tpu", "aot"]
BUILD = "setuptools\nhatchling\n"  # of what is published as source, and of our own wheel
CUDA = re.compile(r"nvidia-|cuda-|triton$")
"""What torch asks for on the index that everybody uses; its builds without CUDA, on an index of their own, do not."""
TORCH_CPU = {  # torch 2.13.0+cpu
    "x86_64": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "aarch64": "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
}


def resolved(kind: str, machine: str) -> list[dict]:
    """The packages of an image on a processor, with all files of each."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pylock.toml"
        command = ["uv", "pip", "compile", "--quiet", "--no-config", "--format", "pylock.toml", "-o", str(out)]
        command += [
            "--python-version",
            PYTHON,
            "--python-platform",
            f"{machine}-manylinux_2_36",
            "-c",
            "constraints.txt",
        ]
        command += [part for extra in EXTRAS.get(kind, ()) for part in ("--extra", extra)]
        command.append("-" if kind == "build" else "pyproject.toml")
        subprocess.run(command, cwd=ROOT, check=True, text=True, input=BUILD)
        return tomllib.loads(out.read_text())["packages"]


def hashes(package: dict, machine: str) -> set[str]:
    """The digests of a package's wheels for a processor, else of its source."""
    files = [one for one in package.get("wheels", ()) if fits(one.get("name") or Path(one["url"]).name, machine)]
    return {one["hashes"]["sha256"] for one in files or [package["sdist"]]}


def fits(wheel: str, machine: str) -> bool:
    """Whether a wheel can be installed on Linux with this Python and processor."""
    minor = int(PYTHON.partition(".")[2])
    for tag in parse_wheel_filename(wheel)[3]:
        least = re.fullmatch(r"(?:cp|py)3(\d*)", tag.interpreter)
        if least and (tag.platform == "any" or re.fullmatch(rf"(many)?linux\w*_{machine}", tag.platform)):
            exact = tag.interpreter == f"cp3{minor}" and tag.abi in (f"cp3{minor}", "none")
            later = tag.abi == "abi3" or (tag.abi == "none" and tag.interpreter.startswith("py"))
            if exact or (later and int(least[1] or 0) <= minor):
                return True
    return False


def lock(kind: str) -> str:
    """The lines of an image's lock: a version, the processor where only one has it, and the hashes of its files."""
    found: dict[str, dict[str, set[str]]] = {}
    for machine in MACHINES[kind]:
        for package in resolved(kind, machine):
            name, version, digests = package["name"], package["version"], hashes(package, machine)
            if kind != "gpu" and CUDA.match(name):
                continue
            if kind != "gpu" and name == "torch":
                version, digests = f"{version}+cpu", {TORCH_CPU[machine]}
            found.setdefault(f"{name}=={version}", {})[machine] = digests
    lines = ["# Made by `make image-locks` from constraints.txt."]
    for pin, machines in sorted(found.items()):
        only = "" if set(machines) == set(MACHINES[kind]) else f' ; platform_machine == "{next(iter(machines))}"'
        lines.append(
            " ".join([pin + only, *(f"--hash=sha256:{one}" for one in sorted(set().union(*machines.values())))])
        )
    return "\n".join(lines) + "\n"


def main(kinds: list[str]) -> None:
    """Write the locks of these kinds, of all without any."""
    for kind in kinds or MACHINES:
        (LOCKS / f"{kind}.txt").write_text(lock(kind))


if __name__ == "__main__":
    main(sys.argv[1:])
