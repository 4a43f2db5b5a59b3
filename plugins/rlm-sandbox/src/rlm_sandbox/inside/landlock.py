"""Landlock: irrevocable loss of file access. The ruleset handles all access rights and has no rule that grants any."""

from __future__ import annotations

import ctypes
import os
import struct

from rlm_sandbox.inside.kernel import system_call

_CREATE, _RESTRICT = 444, 446
"""The numbers are the same on every processor."""
_FILES = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
_FILES_NOW = 0xFFFF
_NETWORK, _SCOPES = 3, 3
"""TCP bind and connect (from version 4); signals and abstract sockets to the outside (from version 6)."""


def version() -> int:
    """Return the kernel's Landlock version; 0: unsupported or disabled."""
    try:
        return system_call("landlock_create_ruleset", _CREATE, None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


def give_up_files() -> int:
    """Deny this process and its children access to all files. Returns `version`; 0: no effect."""
    abi = version()
    if not abi:
        return 0
    fields = [_FILES.get(abi, _FILES_NOW)]
    fields += [_NETWORK] if abi >= 4 else []
    fields += [_SCOPES] if abi >= 6 else []
    handled = ctypes.create_string_buffer(struct.pack(f"={len(fields)}Q", *fields), 8 * len(fields))
    rules = system_call("landlock_create_ruleset", _CREATE, handled, ctypes.c_size_t(8 * len(fields)), 0)
    system_call("landlock_restrict_self", _RESTRICT, rules, 0)
    os.close(rules)
    return abi
