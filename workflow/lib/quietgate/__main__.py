"""`python -m quietgate`: the readers and checks of the workflow, for files and runs made by hand.

Exit status: 0 done, 1 the answer is no, 2 bad input (one line on stderr).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quietgate import __version__
from quietgate.errors import BadInput
from quietgate.wording import counted


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output (head, less) has enough; nothing more may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m quietgate", description=__doc__)
    parser.add_argument("--version", action="version", version=f"quietgate {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    inspect = commands.add_parser("inspect", help="read logs, traces, metrics, result files -> JSON")
    inspect.add_argument("kind", choices=("log", "nccl", "trace", "bench", "metrics"))
    inspect.add_argument("files", nargs="+", type=Path, metavar="FILE")
    inspect.set_defaults(run=_inspect)

    imported = commands.add_parser("import-command", help="a shell launch command -> config (YAML)")
    imported.add_argument("file", type=Path)
    imported.set_defaults(run=_import_command)

    plan = commands.add_parser("plan", help="what a study would run, exactly, and why")
    plan.add_argument("config", type=Path)
    plan.add_argument("--results", type=Path, help="results folder (default results/<study>)")
    plan.add_argument("--brief", action="store_true", help="the command of the reference cell only")
    plan.set_defaults(run=_plan)

    verify = commands.add_parser("verify", help="check a results folder or archive")
    verify.add_argument("results", type=Path)
    verify.add_argument("--traces", action="store_true", help="read large traces again too (minutes)")
    verify.set_defaults(run=_verify)

    share = commands.add_parser("share", help="the archive of a results folder, as rule `share` makes it")
    share.add_argument("results", type=Path)
    where = share.add_mutually_exclusive_group()
    where.add_argument("--into", type=Path, default=Path("results"), help="folder for the archive")
    where.add_argument("--as-folder", type=Path, help="a new folder with the archive's contents instead")
    share.add_argument("--small", action="store_true", help="leave out traces and logs")
    share.add_argument("--tight", action="store_true", help="a .tar.xz instead of a zip: about half the size")
    share.set_defaults(run=_share)

    migrate = commands.add_parser("migrate", help="bring records of an earlier schema to the one of now")
    migrate.add_argument("results", type=Path)
    migrate.set_defaults(run=_migrate)

    compare = commands.add_parser("compare", help="two studies of the same grid")
    compare.add_argument("a", type=Path)
    compare.add_argument("b", type=Path)
    compare.set_defaults(run=_compare)
    return parser


def _print(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def _inspect(args: argparse.Namespace) -> int:
    from quietgate.inspect import read

    _print(read(args.kind, args.files))
    return 0


def _import_command(args: argparse.Namespace) -> int:
    import yaml

    from quietgate.study.importing.import_command import import_command

    config, notes = import_command(args.file)
    for note in notes:
        print(f"# note: {note}")
    print(yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100), end="")
    return 0


def _plan(args: argparse.Namespace) -> int:
    from quietgate.gate import beforehand
    from quietgate.study import Study
    from quietgate.study.earlier import history_of
    from quietgate.study.left_out import leave_out
    from quietgate.study.plan import lines

    study = Study.from_file(args.config)
    results = args.results or Path("results") / study.name
    study.history = history_of(results)
    problems = []
    if study.only_measured:
        leave_out(study, results)
    else:
        problems = beforehand.problems(study)
    for line in lines(study, results, not args.brief, problems):
        print(line)
    return 0


def _verify(args: argparse.Namespace) -> int:
    from quietgate.share.archive import opened
    from quietgate.share.verify import check

    with opened(args.results) as root:
        found = check(root, args.traces)
    for note in found.notes:
        print(f"note: {note}")
    for problem in found.problems:
        print(problem)
    print(counted(len(found.problems), "problem") if found.problems else "complete and unchanged")
    return 1 if found.problems else 0


def _share(args: argparse.Namespace) -> int:
    from quietgate.share.archive import opened
    from quietgate.share.bundle import bundle, stage

    with opened(args.results) as root:
        if args.as_folder:
            stage(root, args.as_folder, print, args.small)
            print(args.as_folder)
        else:
            print(bundle(root, args.into, print, args.small, args.tight))
    return 0


def _migrate(args: argparse.Namespace) -> int:
    from quietgate.share.migrate import migrate

    lines = list(migrate(args.results))
    print(*lines, f"{counted(len(lines), 'record')} brought to the schemas of now", sep="\n")
    return 0


def _compare(args: argparse.Namespace) -> int:
    from quietgate.share.compare import compare

    for line in compare(args.a, args.b):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
