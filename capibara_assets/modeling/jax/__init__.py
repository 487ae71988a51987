"""The training step in JAX: decoders (Llama, Mistral, Qwen) and T5, full fine-tuning and LoRA, layers scanned.

Why it is our own and not google-tunix with qwix: the layers have to be scanned, or a 32-layer model takes XLA many
minutes to compile, and a plan is compiled before it is published. google-tunix has no scanned layers (neither 0.1.5
nor 0.1.7: `tunix/models/*/model.py` loop over a list of blocks), rebuilds a block whole or keeps everything (its
`RematConfig` knows no `minimal`), has no tiling of the loss over the vocabulary in its models, and knows Llama 3, Gemma
and Qwen, but neither T5 nor Mistral. 0.1.7 also pins safetensors < 0.8 while transformers 5.23 asks for 0.8 or later,
so that pip goes back to 0.1.5 beside it; qwix is what it takes LoRA from, and here LoRA is two matrix products.

One idea a file: `sizes` (sizes of a model, and the step's settings), `placement` (sharding), `layers`,
`attention`, `decoder` and `t5` (the two families), `lora`, `optimizers`, `step` (with the loss), `weights` (safetensors
in and out). Nothing here imports jax before a function is called.
"""
