"""Loss on the assistant's tokens: the same arithmetic for training, validation, votes and evaluation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from capibara_assets.errors import InputError
from capibara_assets.modeling.precision import Precision

if TYPE_CHECKING:
    from capibara_assets.datasets.tokenising import Encoded

IGNORED = -100
_CHUNK_ELEMENTS = 1 << 24  # logits held at once: 64 MiB in float32, whatever the vocabulary


@dataclass(frozen=True)
class Losses:
    """Negative log-likelihoods of a list of examples, in its order.

    Attributes:
        nll: summed over an example's supervised tokens, nats, float64, (examples,).
        tokens: an example's supervised tokens, int64, (examples,).
    """

    nll: np.ndarray
    tokens: np.ndarray

    @property
    def mean(self) -> float:
        """Nats per supervised token over all examples; NaN when there is none."""
        total = int(self.tokens.sum())
        return float(self.nll.sum() / total) if total else float("nan")


@dataclass(frozen=True)
class Batch:
    """Examples padded on the right to one length.

    Attributes:
        input_ids: (examples, length) int64; padding holds token 0 and is never looked at: attention is causal.
        positions: flat indices into (examples * length) of the hidden states that predict a supervised token.
        targets: the token each of them has to predict, (supervised,).
        owners: the row of `input_ids` each of them belongs to, (supervised,).
        tokens: real tokens, padding not counted.
    """

    input_ids: Tensor
    positions: Tensor
    targets: Tensor
    owners: Tensor
    tokens: int


def collate(examples: Sequence["Encoded"], device: torch.device | str = "cpu") -> Batch:
    """Pad examples on the right and look up what is supervised; label i is predicted from position i - 1.

    Raises:
        InputError: labels and tokens of an example differ in length, or its first token is supervised.
    """
    length = max(len(example.input_ids) for example in examples)
    input_ids = torch.zeros((len(examples), length), dtype=torch.int64)
    labels = torch.full((len(examples), length), IGNORED, dtype=torch.int64)
    for row, example in enumerate(examples):
        if len(example.input_ids) != len(example.labels):
            raise InputError(f"example with {len(example.input_ids)} tokens but {len(example.labels)} labels")
        input_ids[row, : len(example.input_ids)] = torch.as_tensor(example.input_ids)
        labels[row, : len(example.labels)] = torch.as_tensor(example.labels)
    if bool((labels[:, 0] != IGNORED).any()):
        raise InputError("the first token of an example is supervised, but nothing comes before it to predict it from")
    owners, columns = torch.nonzero(labels != IGNORED, as_tuple=True)
    return Batch(
        input_ids=input_ids.to(device),
        positions=(owners * length + columns - 1).to(device),
        targets=labels[owners, columns].to(device),
        owners=owners.to(device),
        tokens=sum(len(example.input_ids) for example in examples),
    )


def token_nll(model: nn.Module, batch: Batch) -> Tensor:
    """Negative log-likelihood of every supervised token of a batch, (supervised,) float32.

    Only the hidden states that predict a supervised token reach the head, in chunks; where there are several,
    each chunk's logits are computed again in the backward pass rather than kept.

    Args:
        model: a causal language model of Transformers (under PEFT: `peft_model.get_base_model()`).
    """
    hidden = model.base_model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
    hidden = hidden.reshape(-1, hidden.shape[-1])[batch.positions]
    rows = max(1, _CHUNK_ELEMENTS // model.config.vocab_size)
    if len(hidden) <= rows:
        return _head_nll(model, hidden, batch.targets)
    return torch.cat(
        [
            checkpoint(
                _head_nll, model, hidden[start : start + rows], batch.targets[start : start + rows], use_reentrant=False
            )
            for start in range(0, len(hidden), rows)
        ]
    )


def length_sorted(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices in batches of similar length, longest first; rows x longest stays within `batch_tokens`.

    An example longer than `batch_tokens` gets a batch of its own. Ties keep their order.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        rows = max(1, batch_tokens // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows


def assistant_losses(
    model: nn.Module,
    encoded: Sequence["Encoded"],
    *,
    batch_tokens: int = 2048,
    precision: Precision = "fp32",
    poll: Callable[[], None] | None = None,
) -> Losses:
    """Loss of each example's supervised tokens, streamed in length-sorted batches; logits never outlive a chunk.

    Args:
        model: a causal language model; put in eval mode meanwhile, its mode is restored.
        encoded: tokenised examples.
        batch_tokens: rows x longest row of a batch, at most.
        precision: bf16 is near twice as fast where the processor computes in it, and exact to about 1e-3.
        poll: called before each batch; may raise to stop.
    """
    nll = np.zeros(len(encoded), dtype=np.float64)
    tokens = np.zeros(len(encoded), dtype=np.int64)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for indices in length_sorted([len(example.input_ids) for example in encoded], batch_tokens):
                if poll:
                    poll()
                batch = collate([encoded[index] for index in indices], device)
                with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                    losses = token_nll(model, batch).to("cpu", torch.float64).numpy()
                owners = batch.owners.cpu().numpy()
                nll[indices] = np.bincount(owners, weights=losses, minlength=len(indices))
                tokens[indices] = np.bincount(owners, minlength=len(indices))
    finally:
        model.train(was_training)
    return Losses(nll=nll, tokens=tokens)


def _head_nll(model: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy (n,) of the head's logits over hidden states (n, width)."""
    logits = model.get_output_embeddings()(hidden).float()
    config = model.config
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = torch.tanh(logits / cap) * cap
    return functional.cross_entropy(logits, targets, reduction="none")
