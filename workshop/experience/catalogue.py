"""Every task family of the fleet."""

from workshop.experience.api import handlers as api_handlers
from workshop.experience.api import security as api_security
from workshop.experience.api import services as api_services
from workshop.experience.api import sessions as api_sessions
from workshop.experience.families import Family
from workshop.experience.javascript import objects as javascript_objects
from workshop.experience.javascript import records as javascript_records
from workshop.experience.javascript import text as javascript_text
from workshop.experience.ml import experiments as ml_experiments
from workshop.experience.ml import frames as ml_frames
from workshop.experience.ml import metrics as ml_metrics
from workshop.experience.ml import models as ml_models
from workshop.experience.python import algorithms as python_algorithms
from workshop.experience.python import objects as python_objects
from workshop.experience.python import records as python_records
from workshop.experience.python import text as python_text
from workshop.experience.sql import advanced as sql_advanced
from workshop.experience.sql import combining as sql_combining
from workshop.experience.sql import reading as sql_reading

FAMILIES: tuple[Family, ...] = (
    *python_records.FAMILIES,
    *python_text.FAMILIES,
    *python_algorithms.FAMILIES,
    *python_objects.FAMILIES,
    *javascript_records.FAMILIES,
    *javascript_text.FAMILIES,
    *javascript_objects.FAMILIES,
    *ml_metrics.FAMILIES,
    *ml_models.FAMILIES,
    *ml_frames.FAMILIES,
    *ml_experiments.FAMILIES,
    *api_handlers.FAMILIES,
    *api_security.FAMILIES,
    *api_services.FAMILIES,
    *api_sessions.FAMILIES,
    *sql_reading.FAMILIES,
    *sql_combining.FAMILIES,
    *sql_advanced.FAMILIES,
)
