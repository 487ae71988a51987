"""Checks of a whole deployment for `capibara doctor`: store, keys, disk, ports, devices, tools, versions, runs.

Each finding says what is there and, where something is wrong, the next step. Nothing is changed, and nothing is made.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from packaging.specifiers import SpecifierSet

from capibara_assets.cli.graph.health_of_records import check_records
from capibara_assets.cli.graph.health_of_results import check_history, check_store
from capibara_assets.deployment.environment import Deployment, LaunchMode
from capibara_assets.errors import InputError
from capibara_assets.storage.mirror import is_remote
from capibara_assets.training.plan.preflight import CheckFinding, Status, existing_part, guarded

UI_PORT = 3000
LOW, LOWEST = 10 * 2**30, 2**30  # bytes of free disk: a run may not end, nothing can be written
STALE_S = 86_400.0  # of a writer in whose folder nothing changed for so long
_NODE, _OLDEST_NODE = "install Node.js 20 or newer: JavaScript is neither executed again nor graded without it", 20
_DRIVER = Path("/proc/driver/nvidia/version")
_CHIPS = ("accel[0-9]*", "vfio/[0-9]*")  # of TPUs, below /dev
_GIB = 2**30


def deployment_findings(deployment: Deployment) -> list[CheckFinding]:
    """The findings of all checks; one that cannot be made is a warning, and stops no other."""
    checks: dict[str, Callable[[], CheckFinding | list[CheckFinding]]] = {
        "python": check_python,
        "settings": lambda: check_settings(deployment),
        "store": lambda: check_store(deployment),
        "records": lambda: check_records(deployment),
        "disk": lambda: check_disk(deployment),
        "keys": check_keys,
        "credentials": lambda: check_credentials(deployment),
        "ports": check_ui_port,
        "gpu": check_gpu,
        "libtpu": lambda: check_libtpu(deployment),
        "node": check_node,
        "sandbox": check_sandbox,
        "leftovers": lambda: check_leftovers(deployment),
        "jobs": lambda: check_jobs(deployment),
        "runs": lambda: check_history(deployment),
    }
    return [finding for name, check in checks.items() for finding in guarded(name, check)]


def check_python() -> CheckFinding:
    """Check the interpreter against the versions that this package was made for."""
    own = sys.version.split()[0]
    wanted = metadata("capibara-assets")["Requires-Python"]
    if not SpecifierSet(wanted).contains(own, prereleases=True):
        return CheckFinding("python", "fail", f"{own} is not {wanted}", "make the environment anew: make clean setup")
    return CheckFinding("python", "pass", f"{own} at {sys.executable}")


def check_settings(deployment: Deployment) -> CheckFinding:
    """Check that experience, base model, recipes and targets can be read, as a run does before it begins."""
    from capibara_assets.assets.settings import deployment_settings
    from capibara_assets.definitions import deployment_resources

    try:
        deployment_settings(deployment_resources(deployment))
    except InputError as error:
        return CheckFinding("settings", "fail", str(error), "mend it: `capibara run` would end with this")
    return CheckFinding("settings", "pass", f"experience {deployment.experience}, base {deployment.base_model}")


def check_disk(deployment: Deployment) -> list[CheckFinding]:
    """Check the free space of the disks that hold results and work."""
    places = [deployment.home, deployment.work]
    places += [] if is_remote(deployment.store) else [Path(deployment.store)]
    devices = {(folder := existing_part(place)).stat().st_dev: folder for place in places}
    findings = []
    for folder in devices.values():
        free = shutil.disk_usage(folder).free
        free_space = f"{free / _GIB:.1f} GiB free at {folder}"
        todo = "make room: `capibara checkpoint prune --help`, or set CAPIBARA_HOME to a larger disk"
        status: Status = "fail" if free < LOWEST else "warn" if free < LOW else "pass"
        findings.append(CheckFinding("disk", status, free_space, "" if status == "pass" else todo))
    return findings


def check_keys() -> list[CheckFinding]:
    """Check the key of encrypted checkpoints and the voters' keys, if any."""
    from capibara_assets.checkpoints.encryption.keys import given_key
    from capibara_assets.consensus.election.keys import VoterKeys

    findings = []
    try:
        key = given_key()
        words = "checkpoints are not encrypted" if key is None else f"checkpoints are encrypted by {key.origin}"
        findings.append(CheckFinding("keys", "pass", words))
    except InputError as error:
        findings.append(CheckFinding("keys", "fail", str(error), "mend CAPIBARA_CHECKPOINT_KEY"))
    try:
        voters = VoterKeys.from_environment()
        words = (
            "drawn anew for each vote" if voters is None else f"{len(voters.registry)} registered in {voters.folder}"
        )
        findings.append(CheckFinding("keys", "pass", f"voters' keys: {words}"))
    except InputError as error:
        findings.append(CheckFinding("keys", "fail", str(error), "mend CAPIBARA_VOTER_KEYS"))
    return findings


def check_credentials(deployment: Deployment) -> list[CheckFinding]:
    """Check the credentials that the settings require: a bucket, a cluster, E2B."""
    findings = []
    if is_remote(deployment.store) or is_remote(deployment.experience):
        named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        if named and not Path(named).is_file():
            todo = "point it to the key's file, or unset it and log in: gcloud auth application-default login"
            findings.append(CheckFinding("credentials", "fail", f"no GOOGLE_APPLICATION_CREDENTIALS at {named}", todo))
        else:
            findings.append(CheckFinding("credentials", "pass", "Google Cloud: found where they are needed"))
    if deployment.launcher is LaunchMode.K8S and not deployment.image:
        findings.append(CheckFinding("credentials", "fail", "CAPIBARA_LAUNCHER=k8s without an image", "CAPIBARA_IMAGE"))
    if deployment.launcher is LaunchMode.K8S:
        from capibara_assets.processes.background import cluster_client

        try:
            where = cluster_client().configuration.host
            findings.append(CheckFinding("credentials", "pass", f"cluster {where} is configured"))
        except InputError as error:
            findings.append(CheckFinding("credentials", "fail", str(error), "trainings cannot be launched without it"))
    return findings or [CheckFinding("credentials", "pass", "none are needed by these settings")]


def check_ui_port() -> CheckFinding:
    """Check that the UI's port is free, and name the process that uses it."""
    from capibara_assets.processes.serving import require_free

    try:
        require_free("127.0.0.1", UI_PORT)
    except InputError as error:
        return CheckFinding("ports", "warn", str(error), "it is this deployment's own UI, or give `capibara ui --port`")
    return CheckFinding("ports", "pass", f"UI port {UI_PORT} is free")


def check_gpu() -> CheckFinding:
    """Check that torch reaches the GPUs that the driver lists."""
    from capibara_assets.training.devices import gpus_here

    listed = _DRIVER.is_file() or any(Path("/dev").glob("nvidia[0-9]*"))
    if gpus := gpus_here():
        import torch

        if not torch.cuda.is_available():
            todo = f"install a driver for CUDA {torch.version.cuda}, or a torch for your driver"
            return CheckFinding("gpu", "fail", f"{len(gpus)} GPUs, {driver_here()}, and torch reaches none", todo)
        name, cuda = torch.cuda.get_device_name(0), torch.version.cuda
        return CheckFinding("gpu", "pass", f"{len(gpus)} x {name}, {driver_here()}, CUDA {cuda}")
    if listed and version("torch").endswith("+cpu"):
        todo = "install torch with CUDA: https://pytorch.org/get-started"
        return CheckFinding("gpu", "warn", f"a GPU is here, and torch {version('torch')} cannot use it", todo)
    return CheckFinding("gpu", "pass", "none here: trainings compute on the processor")


def driver_here(file: Path = _DRIVER) -> str:
    """The version of NVIDIA's driver, in words."""
    match = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", file.read_text("utf-8")) if file.is_file() else None
    return f"driver {match[0]}" if match else "driver of unknown version"


def check_libtpu(deployment: Deployment, devices: Path = Path("/dev")) -> CheckFinding:
    """Check that TPU plans can be compiled, and that trainings on a slice find their library and its chips."""
    wanted = deployment.target.startswith("tpu")
    chips = [chip for pattern in _CHIPS for chip in devices.glob(pattern)]
    try:
        installed = f"libtpu {version('libtpu')}: TPU plans are compiled"
        if wanted and not chips and deployment.launcher is LaunchMode.LOCAL:
            todo = "run on a TPU VM, or give `capibara run --target` a CPU or GPU"
            return CheckFinding("libtpu", "fail", f"the target is {deployment.target}, and no TPU is here", todo)
        return CheckFinding("libtpu", "pass", f"{installed}, {len(chips)} chips here" if chips else installed)
    except PackageNotFoundError:
        todo = "pip install 'capibara-assets[aot]' (x86-64 Linux)"
    if wanted:
        return CheckFinding("libtpu", "fail", f"not installed, and the target is {deployment.target}", todo)
    return CheckFinding("libtpu", "warn", "not installed: TPU plans are predicted, not compiled", todo)


def check_node() -> CheckFinding:
    """Check for Node.js, and that it is new enough."""
    from capibara_assets.executions.replay.workers import node

    program = node()
    if program is None:
        return CheckFinding("node", "warn", "not on the PATH", _NODE)
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    said = done.stdout.strip()
    number = re.match(r"v(\d+)\.", said)
    if number is None or int(number[1]) < _OLDEST_NODE:
        return CheckFinding("node", "warn", f"{program} is {said or 'of no version'}", _NODE)
    return CheckFinding("node", "pass", f"{said} at {program}")


def check_sandbox() -> CheckFinding:
    """Check which sandbox executes recorded code and answers, and what it isolates."""
    from capibara_assets.executions.replay.e2b import sandbox_place
    from capibara_assets.executions.sandbox.isolation import ASPECTS

    try:
        place = sandbox_place()
    except InputError as error:
        return CheckFinding("sandbox", "fail", str(error), "mend CAPIBARA_SANDBOX or E2B_API_KEY")
    if lacking := sorted(set(ASPECTS) - set(place.aspects)):
        todo = "install bubblewrap and allow user namespaces: without them no answer is graded"
        return CheckFinding("sandbox", "warn", f"{place.kind} cannot isolate {', '.join(lacking)}", todo)
    return CheckFinding("sandbox", "pass", f"{place.kind}: {', '.join(ASPECTS)} are isolated")


def check_leftovers(deployment: Deployment) -> CheckFinding:
    """Check for leftovers of interrupted writers; locks are released by the system and cannot be stale."""
    roots = [deployment.work / "staging"]
    roots += [] if is_remote(deployment.store) else [Path(deployment.store) / "staging"]
    folders = [folder for root in roots if root.is_dir() for folder in root.iterdir()]
    stale = [folder for folder in folders if time.time() - folder.stat().st_mtime > STALE_S]
    if stale:
        todo = "the nightly job removes them: dagster job execute -m capibara_assets.definitions -j clean_up"
        return CheckFinding(
            "leftovers", "warn", f"{len(stale)} folders of interrupted writers in {stale[0].parent}", todo
        )
    return CheckFinding("leftovers", "pass", "no writer was interrupted; no lock can be stale")


def check_jobs(deployment: Deployment) -> CheckFinding:
    """Check for background trainings whose process is gone."""
    from capibara_assets.processes.background import Jobs, state_of

    jobs = Jobs(deployment.home)
    if damaged := jobs.damaged():
        return CheckFinding("jobs", "fail", f"damaged: {'; '.join(damaged)}", "remove what is named")
    states = Counter(state_of(job) for job in jobs.all())
    words = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    if states["lost"] or states["unknown"]:
        return CheckFinding("jobs", "warn", words, "`capibara jobs ls` names them, `capibara jobs logs JOB` says why")
    return CheckFinding("jobs", "pass", words)
