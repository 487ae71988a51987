"""The public names of modeling.

| name | what it is |
|---|---|
| `LoraAdapter` | a LoRA adapter as PEFT's config and plain tensors, with its deltas by module |
| `read_adapter` | reads one from a folder in PEFT's format |
| `write_adapter` | writes one so that `PeftModel.from_pretrained` loads it |

torch is imported when a name is first used.
"""

from typing import TYPE_CHECKING

from capibara_assets.deployment.public_names import public_names

if TYPE_CHECKING:
    from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter

__all__ = ["LoraAdapter", "read_adapter", "write_adapter"]

_HOMES = {
    "LoraAdapter": "modeling.adapters",
    "read_adapter": "modeling.adapters",
    "write_adapter": "modeling.adapters",
}

__getattr__, __dir__ = public_names(__name__, _HOMES)
