"""Registers the package for every test."""

from rlm_testing.fake_packages import registered

_registered = registered("selfplay", autouse=True)
