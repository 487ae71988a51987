"""Every task family of the fleet."""

from capibara_assets.executions.fleet import (
    api_handlers,
    api_security,
    api_services,
    api_sessions,
    javascript_objects,
    javascript_records,
    javascript_text,
    ml_experiments,
    ml_frames,
    ml_metrics,
    ml_models,
    python_algorithms,
    python_objects,
    python_records,
    python_text,
    sql_advanced,
    sql_combining,
    sql_reading,
)
from capibara_assets.executions.fleet.families import Family

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
