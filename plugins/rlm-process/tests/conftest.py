"""Fixtures: the package, registered by its entry point."""

from rlm_testing.fake_packages import registered as registering

registered = registering("process")
