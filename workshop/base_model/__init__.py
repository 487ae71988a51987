"""Pre-training of capibara-nano, the base model that ships: corpus, tokenizer, training loop, yardstick and card."""
