"""Which models can be decoded in slots: their attention masks, a trial against unbatched passes, bytes per token."""

from typing import Any

import torch
from torch import Tensor, nn

from capibara_assets.evaluation.answering.slots import SlotCache
from capibara_assets.modeling.losses import head_logits


class StepMasks:
    """Attention masks of a decoding step: which positions of the slots each row attends to, by kind of layer."""

    def __init__(self, model: nn.Module):
        config = model.config.get_text_config()
        self._additive = config._attn_implementation not in ("sdpa",)
        self._dtype = next(model.parameters()).dtype
        window = getattr(config, "sliding_window", None)
        if getattr(config, "use_sliding_window", True) is False:
            window = None
        kinds = set(getattr(config, "layer_types", None) or [])
        self._window = window
        self._kinds = kinds if "sliding_attention" in kinds else set()

    def masks(self, ends: Tensor, longest: int) -> Any:
        """A mask of shape (rows, 1, 1, longest), or a dict of one per kind of layer.

        Args:
            ends: position of each row's new token, (rows,).
            longest: length of the longest row, its new token included.
        """
        places = torch.arange(longest, device=ends.device)[None]
        seen = places <= ends[:, None]
        if not self._window:
            return self._shaped(seen)
        near = seen & (places > ends[:, None] - self._window)
        if not self._kinds:
            return self._shaped(near)
        return {kind: self._shaped(near if kind == "sliding_attention" else seen) for kind in self._kinds}

    def _shaped(self, seen: Tensor) -> Tensor:
        seen = seen[:, None, None]
        if not self._additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.where(seen, 0.0, lowest).to(self._dtype)


@torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is untyped here
def keeps_rows_apart(model: nn.Module) -> bool:
    """Whether rows of different lengths can share a batch in slots, tried on a few tokens against unbatched passes.

    Models that keep states instead of keys and values, or that take masks of another form, cannot; they answer one
    prompt at a time.
    """
    probes = [[3, 5, 7, 2, 4, 6, 1, 8, 3], [9, 4, 7], [6, 2, 8, 3, 1]]
    probes = [[token % model.config.get_text_config().vocab_size for token in probe] for probe in probes]
    device = next(model.parameters()).device
    try:
        cache, lengths = SlotCache(layer_count(model), 3, 10), [len(probe) - 1 for probe in probes]
        for row, probe in enumerate(probes):
            cache.prefill(range(row, row + 1), 0)
            model.base_model(input_ids=torch.tensor([probe[:-1]], device=device), past_key_values=cache, use_cache=True)
        ends = torch.tensor(lengths, device=device)
        cache.decode(torch.arange(3, device=device), ends, max(lengths) + 1)
        hidden = model.base_model(
            input_ids=torch.tensor([probe[-1:] for probe in probes], device=device),
            position_ids=ends[:, None],
            attention_mask=StepMasks(model).masks(ends, max(lengths) + 1),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        batched = head_logits(model, hidden[:, -1])
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False  # the model needs another kind of cache, which is what is tested here
    for row, probe in enumerate(probes):
        whole = model(input_ids=torch.tensor([probe], device=device), use_cache=False).logits[0, -1].float()
        near = 1e-3 if whole.dtype == next(model.parameters()).dtype else 5e-2
        if not torch.allclose(batched[row], whole, rtol=0, atol=near * float(whole.abs().max())):
            return False
    return True


def layer_count(model: nn.Module) -> int:
    """Number of decoder layers, from the config."""
    return int(model.config.get_text_config().num_hidden_layers)


def token_bytes(model: nn.Module) -> int:
    """Bytes of keys and values per token, from the config."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * layer_count(model) * heads * width * next(model.parameters()).element_size())
