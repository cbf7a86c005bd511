"""The command ``tilec``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code.

    Args:
        argv: arguments without the program's name; those of the process by default.
    """
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        if given.command == "doctor":
            return _doctor(given)
        if given.command == "options":
            return _options()
        if given.command == "version":
            return _version()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        sys.stderr.close()
        return 0
    parser.print_help()
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tilec", description="A tile-kernel compiler in Python.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="what is installed, what works and why not")
    doctor.add_argument("-v", "--verbose", action="store_true", help="tracebacks of broken plugins")
    doctor.add_argument("--no-smoke", action="store_true", help="do not compile and run a kernel")
    commands.add_parser("options", help="all options, their values and where these come from")
    commands.add_parser("version", help="the version")
    return parser


def _doctor(given: argparse.Namespace) -> int:
    from tilec.tools import doctor

    report = doctor.examine(smoke=not given.no_smoke)
    print(doctor.render(report, verbose=given.verbose))
    return 0 if report.usable else 1


def _options() -> int:
    from tilec.diagnostics import OptionError
    from tilec.options import options

    code = 0
    for option in options.table():
        try:
            value = repr(getattr(options, option.name))
        except OptionError as error:
            value, code = f"INVALID: {error.message}", 1
        print(f"{option.name} = {value}  [{option.source()}]")
        print(f"    {option.doc} ({' or '.join(option.variables)})")
    return code


def _version() -> int:
    from tilec import __version__

    print(__version__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
