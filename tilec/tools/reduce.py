"""``tilec reduce``: makes a script smaller while it still prints a message."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tilec.diagnostics import OperandError
from tilec.testing.shrink import shrink


def reduce_script(
    path: Path, message: str, *, seconds: float = 300.0, timeout: float = 60.0
) -> str:
    """The smallest script found whose output (or error output) still contains `message`.

    Each candidate runs in a process and an empty folder of its own.

    Args:
        path: a Python script that shows the problem when it is run.
        message: text that the problem prints; part of an error message, say.
        seconds: when to stop looking.
        timeout: seconds that one candidate may run.

    Raises:
        OperandError: the script does not print `message` to begin with.
    """
    text = path.read_text(encoding="utf-8")

    def shows(candidate: str) -> bool:
        with tempfile.TemporaryDirectory(prefix="tilec-reduce-") as folder:
            script = Path(folder) / path.name
            script.write_text(candidate, encoding="utf-8")
            try:
                done = subprocess.run(
                    [sys.executable, script.name],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
            return message in done.stdout + done.stderr

    try:
        return shrink(text, shows, seconds=seconds)
    except ValueError:
        raise OperandError(
            f"{path.name} does not print {message!r} when it is run",
            hint="give a part of the message that does not change, and run the script once by hand",
        ) from None
