"""The requests that the trainings' own tests train."""

from capibara_assets_tests.training.conftest import dataset as dataset
from capibara_assets_tests.training.conftest import make_request as make_request
from capibara_assets_tests.training.conftest import tiny_folder as tiny_folder
