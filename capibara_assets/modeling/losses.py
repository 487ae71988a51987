"""Cross-entropy of supervised (assistant) tokens, used alike by training, validation, votes and evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from capibara_assets.datasets.tokens.packing import length_buckets
from capibara_assets.errors import InputError
from capibara_assets.modeling.cpu.blocks import lengthened, whole_blocks
from capibara_assets.modeling.cpu.products import quick_products
from capibara_assets.modeling.heads import Head
from capibara_assets.modeling.needed_rows import only_rows
from capibara_assets.modeling.precision import Precision, autocast

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

IGNORED = -100
_LENGTHS = 32  # of bf16 batches on a CPU, which compiles a kernel for each new shape
_CHUNK_ELEMENTS = 1 << 24  # logits held at once on a CPU: 64 MiB in float32, whatever the vocabulary
_TIMES_ON_A_GPU = 4  # where a chunk's kernels end sooner than the next ones are started


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
        return self.mean_of(slice(None))

    def mean_of(self, rows: slice | Sequence[int]) -> float:
        """Nats per supervised token over some of the examples; NaN when they have none."""
        chosen = rows if isinstance(rows, slice) else list(rows)
        total = int(self.tokens[chosen].sum())
        return float(self.nll[chosen].sum() / total) if total else float("nan")


@dataclass(frozen=True)
class Batch:
    """A batch of examples padded on the right to one length; collators.py makes those of other heads, and packed ones.

    Attributes:
        input_ids: (examples, length) int64; padding holds token 0, which causal attention never reads.
        positions: flat indices into (examples * length) of the hidden states that predict a supervised token.
        targets: the token each of them has to predict, (supervised,).
        owners: the example each of them belongs to, (supervised,).
        inputs: further inputs of the model: masks, positions, a decoder's tokens.
        head: the kind of model it is for; a sequence-to-sequence batch's positions are its decoder's.
    """

    input_ids: Tensor
    positions: Tensor
    targets: Tensor
    owners: Tensor
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    head: Head = "causal"


def collate(examples: Sequence["Encoded"], device: torch.device | str = "cpu", multiple: int = 1) -> Batch:
    """Batch of right-padded examples for a causal model; label i is predicted from position i - 1.

    Args:
        multiple: the batch's length is padded to one of it.

    Raises:
        InputError: labels and tokens of an example differ in length, or its first token is supervised.
    """
    length = -(-max(len(example.input_ids) for example in examples) // multiple) * multiple
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
        input_ids=moved(input_ids, device),
        positions=moved(owners * length + columns - 1, device),
        targets=moved(labels[owners, columns], device),
        owners=moved(owners, device),
    )


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; to a GPU from pinned memory, so that the copy overlaps with computation."""
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def token_nll(model: nn.Module, batch: Batch) -> Tensor:
    """Negative log-likelihood of every supervised token of a batch, (supervised,) float32.

    Only the hidden states that predict a supervised token reach the head, in chunks; with more than one chunk,
    logits are recomputed in the backward pass instead of kept.

    Args:
        model: a language model of Transformers with the batch's head (under PEFT: `peft_model.get_base_model()`).
    """
    hidden = _hidden(model, batch)
    hidden = hidden.reshape(-1, hidden.shape[-1])[batch.positions]
    elements = _CHUNK_ELEMENTS * (_TIMES_ON_A_GPU if hidden.is_cuda else 1)
    rows = max(1, elements // model.config.vocab_size)
    if len(hidden) <= rows:
        return _head_nll(model, hidden, batch.targets, batch.head)
    return torch.cat(
        [
            checkpoint(
                _head_nll,
                model,
                hidden[start : start + rows],
                batch.targets[start : start + rows],
                batch.head,
                use_reentrant=False,
            )
            for start in range(0, len(hidden), rows)
        ]
    )


@dataclass(frozen=True)
class TokenLosses:
    """Negative log-likelihoods of every supervised token of a list of examples, in its order.

    Attributes:
        nll: nats, float64, (tokens,): those of the first example, then those of the second, and so on.
        tokens: an example's supervised tokens, int64, (examples,).
    """

    nll: np.ndarray
    tokens: np.ndarray

    @property
    def by_example(self) -> Losses:
        """The sums over each example."""
        owners = np.repeat(np.arange(len(self.tokens)), self.tokens)
        return Losses(np.bincount(owners, weights=self.nll, minlength=len(self.tokens)), self.tokens)


def token_losses(
    model: nn.Module,
    encoded: Sequence["Encoded"],
    *,
    batch_tokens: int = 2048,
    precision: Precision = "fp32",
    poll: Callable[[], None] | None = None,
) -> TokenLosses:
    """Loss of each supervised token, computed in length-sorted batches; logits never outlive a chunk.

    Args:
        model: a causal language model; put in eval mode meanwhile, its mode is restored.
        encoded: tokenised examples.
        batch_tokens: rows x longest row of a batch, at most.
        precision: bf16 is near twice as fast where the processor computes in it, and exact to about 1e-3.
        poll: called before each batch; may raise to stop.
    """
    by_example: list[np.ndarray] = [np.zeros(0)] * len(encoded)
    device = next(model.parameters()).device
    multiple = _LENGTHS if precision == "bf16" and device.type == "cpu" else 1
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), quick_products(device, precision):
            for indices in length_buckets([len(example.input_ids) for example in encoded], batch_tokens):
                if poll:
                    poll()
                batch = collate([encoded[index] for index in indices], device, multiple)
                with only_rows(model, batch.positions, batch.input_ids.numel()), autocast(device, precision):
                    losses = token_nll(model, batch).to("cpu", torch.float64).numpy()
                ends = np.cumsum(np.bincount(batch.owners.cpu().numpy(), minlength=len(indices)))
                for index, own in zip(indices, np.split(losses, ends[:-1]), strict=True):
                    by_example[index] = own
    finally:
        model.train(was_training)
    counts = np.array([len(own) for own in by_example], dtype=np.int64)
    return TokenLosses(np.concatenate([np.zeros(0), *by_example]), counts)


def assistant_losses(
    model: nn.Module,
    encoded: Sequence["Encoded"],
    *,
    batch_tokens: int = 2048,
    precision: Precision = "fp32",
    poll: Callable[[], None] | None = None,
) -> Losses:
    """Loss of each example: `token_losses`, summed over its tokens."""
    return token_losses(model, encoded, batch_tokens=batch_tokens, precision=precision, poll=poll).by_example


def _hidden(model: nn.Module, batch: Batch) -> Tensor:
    """The last hidden states, (examples, length, width); those of the decoder where there is one."""
    if batch.head == "causal":
        output = model.base_model(input_ids=batch.input_ids, use_cache=False, **batch.inputs)
    elif batch.head == "masked":
        output = model.base_model(input_ids=batch.input_ids, **batch.inputs)
    else:
        mask = batch.inputs["attention_mask"]
        encoded = model.get_encoder()(input_ids=batch.input_ids, attention_mask=mask)
        output = model.get_decoder()(
            input_ids=batch.inputs["decoder_input_ids"],
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=mask,
            use_cache=False,
        )
    return output.last_hidden_state


def _head_nll(model: nn.Module, hidden: Tensor, targets: Tensor, head: Head) -> Tensor:
    """Cross-entropy (n,) of the head's logits over hidden states (n, width)."""
    count = len(hidden)
    if hidden.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        hidden = lengthened(hidden, whole_blocks(count, torch.get_autocast_dtype("cpu")))
        targets = functional.pad(targets, (0, len(hidden) - count), value=IGNORED)
    logits = head_logits(model, hidden, head)
    return functional.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED)[:count]


def head_logits(model: nn.Module, hidden: Tensor, head: Head = "causal") -> Tensor:
    """The head's logits over last hidden states: (n, width) -> (n, vocabulary), float32."""
    if head == "masked":
        logits: Tensor = _gap_head(model)(hidden).float()
    else:
        if getattr(model.config, "scale_decoder_outputs", False):  # T5 with tied embeddings
            hidden = hidden * model.config.d_model**-0.5
        logits = model.get_output_embeddings()(hidden).float()
    config = model.config
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = torch.tanh(logits / cap) * cap
    return logits


def _gap_head(model: nn.Module) -> nn.Module:
    """A masked model's head: a transformation, then the vocabulary.

    Raises:
        InputError: the model has none under a known name.
    """
    for name in ("cls", "lm_head"):  # BERT's, RoBERTa's
        if isinstance(head := getattr(model, name, None), nn.Module):
            return head
    raise InputError(f"{type(model).__name__} is a masked language model whose head is not known here")
