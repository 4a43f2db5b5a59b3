"""Audit of rewards: generated answers, right or wrong by construction, and the mistakes of a reward on them."""

from rlm_audit.case import Case, Family

__all__ = ["Case", "Family"]
