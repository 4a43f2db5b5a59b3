"""Data sets, toy tasks and answer extraction: what environments and rewards are built from."""
