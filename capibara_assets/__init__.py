"""capibara-assets: agent experience in, execution-verified datasets, voted adapters and attested checkpoints out."""

__version__ = "0.1.0"
