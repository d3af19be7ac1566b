"""Installs what is missing: distribution packages, Python packages in a virtual environment, the load program."""

from __future__ import annotations

import shutil
from pathlib import Path

from .shell import run, say

LOAD = Path(__file__).resolve().parent.parent / "load"


def apt(wanted: dict[str, str]) -> None:
    """Installs packages. `wanted` maps a program or path to the package that has it."""
    missing = sorted({package for sign, package in wanted.items()
                      if not (Path(sign).exists() if sign.startswith("/") else shutil.which(sign))})
    if missing:
        say(f"installing {' '.join(missing)}")
        run(["apt-get", "update", "-qq"], 300)
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], 900,
            env={"DEBIAN_FRONTEND": "noninteractive"})


def pip(tools: Path, package: str) -> Path:
    """Installs a Python package into a virtual environment below `tools`; returns the environment."""
    home = tools / "venv"
    if not (home / "bin" / "pip").exists():
        apt({"/usr/lib/python3/dist-packages/ensurepip": "python3-venv"} if not _has_ensurepip() else {})
        run(["python3", "-m", "venv", str(home)], 120)
    if run([str(home / "bin" / "pip"), "show", "-q", package], 60, check=False).code != 0:
        say(f"installing {package}")
        run([str(home / "bin" / "pip"), "install", "-q", package], 600)
    return home


def _has_ensurepip() -> bool:
    return run(["python3", "-c", "import ensurepip"], 20, check=False).code == 0


def loads(tools: Path) -> None:
    """Installs the programs that make the load."""
    tools.mkdir(parents=True, exist_ok=True)
    apt({"fio": "fio", "mkfs.xfs": "xfsprogs", "dbench": "dbench", "postmark": "postmark", "gcc": "gcc",
         "ip": "iproute2", "/usr/include/nfsc/libnfs.h": "libnfs-dev", "nfs-ls": "libnfs-utils"})
    run(["gcc", "-O2", "-Wall", str(LOAD / "metadata.c"), "-o", str(tools / "metadata")], 60)
    run(["gcc", "-O2", "-Wall", str(LOAD / "nfs.c"), "-o", str(tools / "nfs"), "-lnfs"], 60)


def auto_loads(tools: Path) -> None:
    """Installs what the rows of auto need besides Shoal."""
    tools.mkdir(parents=True, exist_ok=True)
    apt({"fio": "fio", "mkfs.xfs": "xfsprogs", "gcc": "gcc", "ip": "iproute2", "/usr/include/nfsc/libnfs.h": "libnfs-dev"})
    run(["gcc", "-O2", "-Wall", "-pthread", str(LOAD / "reads.c"), "-o", str(tools / "reads")], 60)
    run(["gcc", "-O2", "-Wall", str(LOAD / "nfs.c"), "-o", str(tools / "nfs"), "-lnfs"], 60)


def growth_load(tools: Path) -> None:
    """Installs what the growth rows need besides Shoal."""
    tools.mkdir(parents=True, exist_ok=True)
    apt({"mkfs.xfs": "xfsprogs", "gcc": "gcc", "ip": "iproute2"})
    run(["gcc", "-O2", "-Wall", str(LOAD / "growth.c"), "-o", str(tools / "growth")], 60)
