"""The asset graph, one file per stage, assembled in the order of the stages."""

from capibara_assets.assets import consensus, datasets, evaluation, experience, knowledge, plans, training

STAGES = (experience, knowledge, datasets, plans, training, consensus, evaluation)
