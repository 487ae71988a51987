"""The files of each epoch in a run's folder: `checkpoint-epoch-N/`, and a line of `epoch_info.json`.

A training that resumes before the end of an epoch writes both again in place of the former ones, so that nothing is
there twice.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.files import ADAPTER_WEIGHTS, check_safetensors
from capibara_assets.storage.commit import replace_folder
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.request import Start, TrainingRequest
from capibara_assets.training.resume.epoch_info import epoch_folder, read_epoch_info, write_epoch_info
from capibara_assets.training.resume.points import Progress


@dataclass(frozen=True)
class EpochFolders:
    """Writes the epoch folders of one voter; inactive for a request without an output folder.

    Attributes:
        folder: where they appear; None: nowhere.
        ends: step after which each epoch is over, in order (`Curriculum.epoch_ends`).
        writes: of several processes that train one voter, one writes.
    """

    folder: Path | None
    ends: tuple[int, ...]
    writes: bool = True

    @classmethod
    def of(cls, request: TrainingRequest, folder: Path, ends: tuple[int, ...], *, writes: bool) -> "EpochFolders":
        """The epoch folders of a request."""
        return cls(folder if request.output is not None else None, ends, writes)

    def due(self, step: int) -> bool:
        """Whether an epoch ends after this step; the same on all processes."""
        return self.folder is not None and step in self.ends

    def write(self, progress: Progress, adapter: LoraAdapter, rate: float) -> Path | None:
        """Write folder and line of the epoch just finished, and reset the epoch's sums in the progress.

        Returns:
            The folder; None where this process writes none.

        Args:
            adapter: of this step.
            rate: learning rate of this step.
        """
        epoch = 1 + self.ends.index(progress.step)
        loss = progress.epoch_loss / progress.epoch_tokens if progress.epoch_tokens else None
        progress.epoch_loss, progress.epoch_tokens = 0.0, 0
        if self.folder is None or not self.writes:
            return None
        target = epoch_folder(self.folder, epoch)
        # Not named as a resume point in the making: those are removed while one is saved.
        staging = self.folder / f".epoch-{epoch}.part"
        shutil.rmtree(staging, ignore_errors=True)
        write_adapter(adapter, staging)
        replace_folder(staging, target)
        rows = [row for row in read_epoch_info(self.folder) if row["epoch"] < epoch]
        rows.append(
            {
                "epoch": epoch,
                "train_loss": loss,
                "learning_rate": rate,
                "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
                "checkpoint_path": str(target.resolve()),
                "global_step": progress.step,
            }
        )
        write_epoch_info(self.folder, rows)
        return target


def begin_at(
    start: Start, ends: tuple[int, ...], peft_names: Mapping[str, str], trainable: Mapping[str, Tensor]
) -> tuple[int, dict[str, Tensor]]:
    """Step number and weights (by the model's own names) after the epoch that a training starts from.

    Args:
        ends: of the training that begins.
        peft_names: name of a trained parameter -> its name in PEFT's file.
        trainable: what is trained, for names and shapes.

    Raises:
        InputError: the adapter has changed or has other weights, or no epoch is left to train.
    """
    if start.epoch >= len(ends):
        raise InputError(
            f"epoch {start.epoch} is where this training starts, and it has {len(ends)} epochs: ask for more of them"
        )
    file = start.adapter / ADAPTER_WEIGHTS
    if not file.is_file() or sha256_file(file) != start.digest:
        raise InputError(f"{file} has changed or is gone since the training was requested: request it again")
    check_safetensors(file)
    saved = load_file(file)
    if set(saved) != set(peft_names.values()):
        raise InputError(
            f"{start.adapter} has other weights than are trained here: leave the LoRA settings as they were"
        )
    weights = {name: saved[theirs] for name, theirs in peft_names.items()}
    if odd := [name for name, value in weights.items() if value.shape != trainable[name].shape]:
        raise InputError(
            f"{start.adapter}: {odd[0]} is {tuple(weights[odd[0]].shape)}, here {tuple(trainable[odd[0]].shape)}: "
            "leave the LoRA settings as they were"
        )
    return ends[start.epoch - 1], weights
