"""What programs import: loaded once, in the zygote. Beyond the lock no file can be read, so nothing else can be."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Sequence

MODULES = [
    "abc",
    "argparse",
    "array",
    "ast",
    "atexit",
    "base64",
    "binascii",
    "bisect",
    "builtins",
    "bz2",
    "calendar",
    "cmath",
    "codecs",
    "collections",
    "collections.abc",
    "colorsys",
    "concurrent.futures",
    "concurrent.futures.thread",
    "contextlib",
    "contextvars",
    "copy",
    "copyreg",
    "csv",
    "ctypes",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "dis",
    "enum",
    "errno",
    "fractions",
    "functools",
    "gc",
    "getpass",
    "glob",
    "graphlib",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "html.parser",
    "inspect",
    "io",
    "ipaddress",
    "itertools",
    "json",
    "keyword",
    "linecache",
    "locale",
    "logging",
    "lzma",
    "marshal",
    "math",
    "numbers",
    "opcode",
    "operator",
    "os",
    "os.path",
    "pathlib",
    "pickle",
    "pprint",
    "queue",
    "random",
    "re",
    "reprlib",
    "resource",
    "secrets",
    "select",
    "selectors",
    "shlex",
    "shutil",
    "signal",
    "socket",
    "stat",
    "statistics",
    "string",
    "stringprep",
    "struct",
    "subprocess",
    "symtable",
    "sys",
    "tempfile",
    "textwrap",
    "threading",
    "time",
    "timeit",
    "token",
    "tokenize",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "unittest",
    "unittest.mock",
    "urllib.parse",
    "uuid",
    "warnings",
    "weakref",
    "xml.etree.ElementTree",
    "zlib",
    "zoneinfo",
    "_strptime",
    "encodings.ascii",
    "encodings.latin_1",
    "encodings.utf_16",
    "encodings.idna",
    "encodings.cp1252",
    "encodings.hex_codec",
]


def load(wanted: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Imports the usual modules and the `wanted` ones, which may lie under `paths`; then forgets where files are.

    Returns:
        What of `MODULES` this Python does not have.

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
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # what `site` would have done
    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.argv[:] = [""]
    sys.executable = ""
    return missing
