"""Names of recomputation policies in published tables, and what each keeps."""

import re
from dataclasses import replace

from benchmarks.planning.published_cells import Cells
from capibara_assets.planning.conventions import Remat
from capibara_assets.planning.workload import NOTHING, Recompute, policy


def read_remat(table: Cells, software: str) -> Recompute:
    """The recomputation policy of a row, from MaxText's, llm-foundry's and torchtitan's names for it.

    `custom(…)` and `save_…`/`…_offloaded` name what is kept; the rest is computed again. JAX drops from the second
    forward pass what the backward pass does not use, which is a layer's last product.
    """
    text = table.text("remat_policy").lower()
    again = policy(Remat.FULL, software)
    if not text:
        if software in {"maxtext", "maxdiffusion"}:
            table.assume("remat_policy", "full", "MaxText's default")
            return again
        return NOTHING
    if text in {"none", "no", "false", "off"}:
        return NOTHING
    if text in {"full", "true", "yes"}:
        return again
    if "per op" in text:  # torchtitan: products kept every second time, attention kept
        return Recompute(elementwise=1, mlp=0.25, qkv=0.5)
    if text.startswith("selective"):  # torchtitan: every second layer
        return Recompute(qkv=0.5, output=0.5, mlp=0.5, scores=0.5, elementwise=0.5)
    if text.startswith("minimal"):
        offloaded = 6.0 if "offload" in text else 0.0
        return Recompute(elementwise=1, offloaded=offloaded)
    if text.startswith(("custom", "save", "qkv", "offload")) or "offload" in text:
        return _kept(text, again)
    table.assume("remat_policy", "full", f"{text!r} is not known")
    return again


def _kept(text: str, again: Recompute) -> Recompute:
    """What a list of kept names leaves to be computed again."""
    kept = set(re.findall(r"[a-z_]+", text))
    redone = {name for name, how in re.findall(r"([a-z_]+)=([a-z]+)", text) if how == "remat"}
    kept -= redone
    qkv = bool(kept & {"qkv", "qkv_proj_offloaded", "save_qkv_proj", "save_dot_except_mlp"}) or {"q", "k", "v"} <= kept
    qkv = qkv or {"query_proj", "key_proj", "value_proj"} <= kept
    output = bool(kept & {"out_proj", "save_out_proj", "save_dot_except_mlp"})
    mlp = 0.0 if any(name.startswith(("mlpwi", "mlp_wi")) for name in kept) else again.mlp
    host = "offload" in text
    widths = (1.0 if "decoder_layer_input" in kept else 0.0) + (1.5 if qkv else 0.0) + (1.0 if output else 0.0)
    return replace(again, qkv=0 if qkv else 1, output=0 if output else 1, mlp=mlp, offloaded=widths if host else 0.0)
