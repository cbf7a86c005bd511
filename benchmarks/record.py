"""Writing down a measurement: what was measured, where, with which versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("tilec", "tilec-c", "numpy", "torch", "cffi")


def machine() -> dict[str, Any]:
    """CPU, cores, operating system and versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text())
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def write(name: str, title: str, body: str, data: Any) -> Path:
    """Write `results/<name>.md` and `.json`; returns the path of the former."""
    facts = machine()
    versions = ", ".join(f"{key} {value}" for key, value in facts["versions"].items())
    where = (
        f"{facts['date']}, {facts['cpu']}, {facts['cores']} cores, {facts['system']}, "
        f"Python {facts['python']}, {versions}"
    )
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.md"
    path.write_text(f"# {title}\n\n{where}\n\n{body}\n", encoding="utf-8")
    text = json.dumps({"machine": facts, "results": data}, indent=1)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    return path
