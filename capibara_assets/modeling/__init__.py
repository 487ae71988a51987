"""Load base models and adapters, LoRA targets, losses; pre-training of the shipped base model."""
