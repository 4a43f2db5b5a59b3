"""Write the lock files of the images, for CUDA and CPU, from pyproject.toml and constraints.txt: `make locks`.

pip resolves the dependencies of every package once, for this Python on Linux. Both files have the same versions. PyPI's
torch for x86-64 is its CUDA build, which requires exact versions of CUDA's libraries. The CPU has another build.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CUDA_ONLY = re.compile(r"nvidia-|cuda-|triton$")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
HEAD = "# {device}: written by `make locks` from pyproject.toml and constraints.txt"


def wanted() -> list[str]:
    """Return the third-party requirements of the core and of the packages of its extra `all`."""
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = core["optional-dependencies"]["all"]
    own = {"rlm-plugins", *(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))}
    listed = list(core["dependencies"])
    for name in names:
        listed += tomllib.loads((ROOT / "plugins" / name / "pyproject.toml").read_text())["project"]["dependencies"]
    return sorted({x for x in listed if re.split(r"[^\w-]", x)[0] not in own})


def resolved() -> dict[str, str]:
    """Return name → version of every package that pip would install."""
    options = ["--dry-run", "--ignore-installed", "--quiet", "--report", "-", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, *wanted()], capture_output=True, text=True, check=True
    )
    entries = [entry["metadata"] for entry in json.loads(done.stdout)["install"]]
    return {entry["name"].lower().replace("_", "-"): entry["version"].partition("+")[0] for entry in entries}


def main() -> None:
    """Write both files."""
    versions = dict(sorted(resolved().items()))
    folder = ROOT / ".ci" / "locks"
    folder.mkdir(exist_ok=True)
    pins = [f"{name}=={version}" for name, version in versions.items() if not CUDA_ONLY.match(name)]
    (folder / "cuda.txt").write_text("\n".join([HEAD.format(device="CUDA"), *pins, ""]))
    of_cpu = [f"{pin}+cpu" if pin.startswith("torch==") else pin for pin in pins]
    (folder / "cpu.txt").write_text(
        "\n".join([HEAD.format(device="CPU"), f"--extra-index-url {CPU_INDEX}", *of_cpu, ""])
    )


if __name__ == "__main__":
    main()
