"""Data sets, toy tasks and answer extraction: the building blocks of environments and rewards."""
