"""Modules that programs import: loaded once, in the zygote. The locks forbid reading files, hence later imports."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Sequence

from rlm_sandbox.inside import devices, event_loop

_MODULES = """
abc argparse array ast asyncio atexit base64 binascii bisect bz2 calendar cmath cmd codecs collections.abc colorsys
concurrent.futures.thread configparser contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib dis
doctest enum errno fileinput fractions functools gc getpass glob graphlib hashlib heapq hmac html.parser inspect io
ipaddress itertools json linecache locale logging math mmap multiprocessing numbers operator os.path pathlib pickle
platform pprint profile queue random re reprlib resource sched secrets select selectors shlex signal socket stat
statistics string stringprep struct subprocess sys tempfile textwrap threading time timeit token tokenize tomllib
traceback tracemalloc types typing unicodedata unittest.mock urllib.parse uuid warnings weakref xml.etree.ElementTree
zlib zoneinfo _strptime encodings.ascii encodings.latin_1 encodings.utf_16 encodings.idna encodings.hex_codec
"""
MODULES = tuple(_MODULES.split())
"""Each adds to the cost of every fork, which has to map the memory."""


def load(wanted: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Import the usual modules and the `wanted` ones, which may be under `paths`; then remove all import paths.

    Returns:
        The names in `MODULES` that this Python does not have.

    Raises:
        ImportError: A wanted module cannot be imported.
    """
    missing = []
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    sys.path.extend(paths)
    for name in wanted:
        importlib.import_module(name)
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # as `site` would have done
    devices.install()
    event_loop.install()
    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.argv[:] = [""]
    sys.executable = ""
    return missing
