"""Prompt features of routers of kind `embedding`: the base model's mean hidden state."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from capibara_assets.evaluation.routing.router import Embed
from capibara_assets.modeling.base import Base

_ROWS = 16


def embedder(base: Base, tokens: int) -> Embed:
    """A function from prompts to features, (prompts, hidden) float32.

    The features of a prompt are the mean of the last layer's states over its last `tokens` tokens; but for rounding
    they do not depend on the other prompts.
    """

    def embed(prompts: Sequence[str]) -> NDArray[np.float32]:
        features = np.zeros((len(prompts), base.model.config.hidden_size), np.float32)
        ids = [base.tokenizer(prompt, add_special_tokens=True)["input_ids"][-tokens:] for prompt in prompts]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            features[rows] = _means(base, [ids[i] for i in rows])
        return features

    return embed


def _means(base: Base, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    length = max(1, *map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=base.model.device)
    mask = torch.tensor([[place < len(row) for place in range(length)] for row in rows], device=base.model.device)
    with torch.no_grad():  # padded on the right: causal attention never sees the padding
        states = base.model.base_model(input_ids=ids, use_cache=False).last_hidden_state.float()
    sums = (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return np.asarray(sums.cpu().numpy(), np.float32)
