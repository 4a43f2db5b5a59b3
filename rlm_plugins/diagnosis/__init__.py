"""Diagnosis of a run from its metrics: rules with bounds, evidence, and the override that mends the cause.

`diagnose` is a pure function of the records of ``metrics.jsonl``. It runs live after each step and in ``rlm why``.
"""

from rlm_plugins.diagnosis.diagnose import Finding, diagnose, foresee, is_suspicious
from rlm_plugins.diagnosis.rules import RULES, Bound, Rule
from rlm_plugins.diagnosis.settings import StageSettings

__all__ = ["RULES", "Bound", "Finding", "Rule", "StageSettings", "diagnose", "foresee", "is_suspicious"]
