"""Records: validated JSON that later steps, reviewers and later versions rely on.

Every record is an envelope (schema, study, cell, launch, instance, digest, status, failure, times)
plus its own fields, described by `workflow/schemas/<name>.schema.json` (JSON Schema, Draft 2020-12).
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry, Resource

from quietgate.errors import BadInput
from quietgate.files import write_json

SCHEMAS = Path(__file__).parents[2] / "schemas"

Record = dict[str, Any]


def utc_now() -> str:
    """The time now as ISO 8601 in UTC, to the millisecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@cache
def _registry() -> Registry[Any]:
    resources = [
        (path.name, Resource.from_contents(json.loads(path.read_text())))
        for path in SCHEMAS.glob("*.schema.json")
    ]
    registry: Registry[Any] = Registry()
    return registry.with_resources(resources)


@cache
def _whole(pattern: str) -> re.Pattern[str]:
    """A schema's pattern with its last `$` at the very end: Python's also stands before a last newline."""
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern))


def _matches(_: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _whole(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator = extend(Draft202012Validator, {"pattern": _matches})  # type: ignore[no-untyped-call]


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of `workflow/schemas/<name>.schema.json`."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return cast(Draft202012Validator, _Validator(schema, registry=_registry()))


def kind_of(record: Any, where: str) -> str:
    """The record's kind, from its `schema` field "quietgate/<kind>/<n>"; BadInput if it has none."""
    schema = record.get("schema") if isinstance(record, dict) else None
    parts = schema.split("/") if isinstance(schema, str) else []
    if len(parts) != 3 or parts[0] != "quietgate":
        raise BadInput(f"{where}: not a quietgate record (its `schema` is {schema!r})")
    if not (SCHEMAS / f"{parts[1]}.schema.json").is_file():
        raise BadInput(f"{where}: unknown record kind {parts[1]!r}; a newer quietgate may read it")
    return parts[1]


def problem(record: Any, kind: str) -> str | None:
    """What breaks the schema of `kind`, as "place: message", or None."""
    error = best_match(validator(kind).iter_errors(record))
    if error is None:
        return None
    place = "/".join(str(p) for p in error.absolute_path) or "(top)"
    return f"{place}: {error.message[:300]}"


def write(path: Path, record: Record) -> None:
    """Validate and write a record atomically; ValueError if it breaks its own schema (our bug)."""
    wrong = problem(record, kind_of(record, str(path)))
    if wrong:
        raise ValueError(f"{path}: record breaks its schema at {wrong}")
    write_json(path, record)


def read(path: Path, kind: str | None = None) -> Record:
    """Read and validate a record; BadInput says what is wrong and where."""
    try:
        record = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{path}: no such record") from None
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"{path}: not readable as JSON ({e})") from None
    found = kind_of(record, str(path))
    if kind is not None and found != kind:
        raise BadInput(f"{path}: a {found} record where a {kind} record belongs")
    wrong = problem(record, found)
    if wrong:
        raise BadInput(f"{path}: breaks schema {found} at {wrong}")
    return dict(record)
