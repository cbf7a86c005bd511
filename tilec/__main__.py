"""The command ``tilec``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


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
        if given.command == "reduce":
            return _reduce(given)
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
    reduce = commands.add_parser("reduce", help="make a script smaller that shows a problem")
    reduce.add_argument("script", type=Path, help="prints the message when it is run")
    reduce.add_argument("--message", required=True, help="text that must still be printed")
    reduce.add_argument("--seconds", type=float, default=300.0, help="when to stop looking")
    reduce.add_argument("-o", "--output", type=Path, help="where the small script goes (stdout)")
    commands.add_parser("options", help="all options, their values and where these come from")
    commands.add_parser("version", help="the version")
    return parser


def _doctor(given: argparse.Namespace) -> int:
    from tilec.tools import doctor

    report = doctor.examine(smoke=not given.no_smoke)
    print(doctor.render(report, verbose=given.verbose))
    return 0 if report.usable else 1


def _reduce(given: argparse.Namespace) -> int:
    from tilec.diagnostics import TilecError
    from tilec.tools.reduce import reduce_script

    try:
        small = reduce_script(given.script, given.message, seconds=given.seconds)
    except (TilecError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if given.output is not None:
        given.output.write_text(small, encoding="utf-8")
    else:
        print(small, end="")
    return 0


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
