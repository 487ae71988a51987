"""New experience files: the sensor that turns them into one run of what reads them; automation does the rest."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from capibara_assets.errors import InputError
from capibara_assets.resources import Experience

TICK_SECONDS = int(os.environ.get("CAPIBARA_TICK_SECONDS") or 20)
STATUS = (
    dg.DefaultSensorStatus.STOPPED if os.environ.get("CAPIBARA_AUTOMATION") == "off" else dg.DefaultSensorStatus.RUNNING
)
QUIET_SECONDS = 2.0  # a file younger than this may still be being written: it waits for the next tick
SUBFOLDERS = {"e2b_logs": "e2b_logs", "ace_playbooks": "playbooks"}


def experience_files(folder: Path, asset: str) -> Iterator[os.DirEntry[str]]:
    """Files that an asset reads: its own subfolder where there is one, else all; hidden and partial files wait."""
    own = folder / SUBFOLDERS[asset]
    stack = [own if own.is_dir() else folder]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name.endswith((".part", ".tmp")):
                    continue
                if entry.is_dir():
                    stack.append(Path(entry.path))
                else:
                    yield entry


def fingerprint(folder: Path, asset: str, now: float) -> tuple[str, int, int]:
    """Digest of names, sizes and times of the finished files, their number, and how many are still being written."""
    lines, waiting = [], 0
    for entry in experience_files(folder, asset):
        status = entry.stat()
        if now - status.st_mtime < QUIET_SECONDS:
            waiting += 1
            continue
        lines.append(f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:24], len(lines), waiting


@dg.sensor(
    target=dg.AssetSelection.assets(*SUBFOLDERS),
    minimum_interval_seconds=TICK_SECONDS,
    default_status=STATUS,
    description="Watches the experience folder; one run per change, for the ledger or the playbooks that changed.",
)
def new_experience(context: dg.SensorEvaluationContext, experience: Experience) -> dg.SensorResult | dg.SkipReason:
    """The cursor is one fingerprint per asset: it stays small with any number of files and misses no late one."""
    try:
        folder = experience.path
    except InputError as error:
        return dg.SkipReason(str(error))
    seen: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
    requests, lines = [], []
    for asset in SUBFOLDERS:
        found, files, waiting = fingerprint(folder, asset, time.time())
        lines.append(f"{asset}: {files:,} files, {waiting} still being written")
        if files and seen.get(asset) != found:
            requests.append(
                dg.RunRequest(
                    run_key=f"{asset}:{found}",
                    asset_selection=[dg.AssetKey(asset)],
                    tags={"capibara/experience": found, "capibara/files": str(files)},
                )
            )
            seen[asset] = found
    if not requests:
        return dg.SkipReason(f"nothing new in {folder} ({'; '.join(lines)})")
    return dg.SensorResult(run_requests=requests, cursor=json.dumps(seen, sort_keys=True))


# Disjoint targets, so that heavy work cannot starve light work.
HEAVY = (
    "trained_adapters",
    "consensus_checkpoint",
    "merged_checkpoint",
    "moe_checkpoint",
    "evaluation",
    "promoted_model",
)

light_automation = dg.AutomationConditionSensorDefinition(
    "light_automation",
    target=dg.AssetSelection.all() - dg.AssetSelection.assets(*HEAVY),
    default_status=STATUS,
    minimum_interval_seconds=TICK_SECONDS,
    use_user_code_server=False,
)
heavy_automation = dg.AutomationConditionSensorDefinition(
    "heavy_automation",
    target=dg.AssetSelection.assets(*HEAVY),
    default_status=STATUS,
    minimum_interval_seconds=TICK_SECONDS,
    use_user_code_server=False,
)
SENSORS = [new_experience, light_automation, heavy_automation]
