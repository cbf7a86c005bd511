"""The option that rewrites the golden files of this folder."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/errors/**/*.err from what the compiler says now",
    )
