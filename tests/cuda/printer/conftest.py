"""Helper modules of this folder, and the option that rewrites its golden files."""

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # another folder has it as well
        parser.addoption(
            "--update-golden",
            action="store_true",
            help="rewrite tests/cuda/printer/golden/*.cu from what is printed now",
        )
