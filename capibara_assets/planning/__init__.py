"""Hardware targets, model accounting, LoRA and TPU plans."""
