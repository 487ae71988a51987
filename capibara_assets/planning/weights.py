"""Tensor shapes and sizes of a base model, read from its safetensors headers: exact counts for any architecture."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import read_safetensors_header, weight_files

_NAMED = 12  # modules that an error lists
_WEIGHT = ".weight"


@dataclass(frozen=True)
class WeightTable:
    """Shapes of a model's tensors.

    Attributes:
        path: folder of the model.
        shapes: name -> shape; tensors that share memory are stored once.
        stored_bytes: total size of the tensors in the files.
    """

    path: Path
    shapes: dict[str, tuple[int, ...]]
    stored_bytes: int

    @property
    def parameters(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def matrix_parameters(self) -> int:
        """Parameters of tensors with two or more dimensions, embeddings included."""
        return sum(prod(shape) for shape in self.shapes.values() if len(shape) > 1)

    def adapted(self, modules: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Module -> shape of its matrix, for each module that PEFT would adapt.

        PEFT adapts a module whose name is one of `modules`, or ends with a dot and one of them.

        Raises:
            InputError: one of `modules` names no matrix; the message lists those that exist.
        """
        matrices: dict[str, tuple[int, int]] = {}
        used = set()
        for name, shape in self.shapes.items():
            module = name.removesuffix(_WEIGHT)
            ends = [end for end in modules if module == end or module.endswith(f".{end}")]
            if name.endswith(_WEIGHT) and len(shape) == 2 and ends:
                matrices[module] = (shape[0], shape[1])
                used.update(ends)
        missing = sorted(set(modules) - used)
        if missing:
            raise InputError(
                f"base {self.path} has no linear layer named {', '.join(missing)}; it has {', '.join(self._linear())}: "
                "change model.lora.modules"
            )
        return matrices

    def lora_parameters(self, rank: int, modules: Sequence[str], *, dora: bool = False) -> int:
        """Trainable parameters of a LoRA adapter, as PEFT counts them.

        r * (in + out) for each matrix (Hu et al. 2021); DoRA adds a magnitude for each output.

        Args:
            rank: r.
            modules: as in `adapted`.
            dora: count magnitudes; needs the stored orientation (out, in), which all but GPT-2's layers have.
        """
        sizes = self.adapted(modules).values()
        return sum(rank * (rows + columns) + (rows if dora else 0) for rows, columns in sizes)

    def _linear(self) -> list[str]:
        """Last parts of the names of the layers' matrices, for an error message."""
        inner = [name for name, shape in self.shapes.items() if len(shape) == 2 and any(map(str.isdigit, name))]
        names = sorted({name.removesuffix(_WEIGHT).rpartition(".")[2] for name in inner if name.endswith(_WEIGHT)})
        return names[:_NAMED] or ["none"]


def read_weights(path: Path) -> WeightTable:
    """The tensors of a model's safetensors files.

    Raises:
        InputError: a file is missing, or its header is damaged.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    stored = 0
    for file in weight_files(path):
        try:
            header = json.loads(read_safetensors_header(file))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            shapes |= {name: tuple(entry["shape"]) for name, entry in tensors.items()}
            stored += sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in tensors.values())
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise InputError(f"{file} is damaged: its safetensors header is not readable; copy it again") from error
    return WeightTable(path, shapes, stored)
