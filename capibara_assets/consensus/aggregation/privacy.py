"""Differential privacy of federated voters: accountant, clipped and noised mean, predicted signal-to-noise.

The mathematics is in `training.strategies.privacy`, because federated training needs it and imports nothing from here.
"""

from capibara_assets.training.strategies.privacy import (
    NoisePrediction,
    affordable_steps,
    combined_privacy,
    dp_clipped_mean,
    dp_epsilon,
    dp_noise_multiplier,
    predicted_snr,
    privacy_document,
    privacy_problems,
    recomputed_epsilon,
    replace_one,
)

__all__ = [
    "NoisePrediction",
    "affordable_steps",
    "combined_privacy",
    "dp_clipped_mean",
    "dp_epsilon",
    "dp_noise_multiplier",
    "predicted_snr",
    "privacy_document",
    "privacy_problems",
    "recomputed_epsilon",
    "replace_one",
]
