"""A study's config: read, completed with defaults, and checked before anything starts."""

from __future__ import annotations

import copy
import difflib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema.exceptions import ValidationError

from quietgate.errors import BadConfig
from quietgate.records import validator
from quietgate.study.cross_field import Config, cross_field_problems


class Loader(yaml.SafeLoader):
    """YAML in which a key stands once: of two `grid` blocks the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, unless a key stands in it twice."""
        seen = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge" or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} stands here a second time", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(path: Path) -> Config:
    """Read a YAML config file; BadConfig names the file and the line that does not parse."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise BadConfig([f"{path}: cannot be read ({e.strerror})"]) from None
    except UnicodeDecodeError:
        raise BadConfig([f"{path}: not a text file; a study's config is YAML"]) from None
    try:
        config = yaml.load(text, Loader)
    except RecursionError:
        raise BadConfig([f"{path}: nested too deeply"]) from None
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        what = getattr(e, "problem", None) or "not valid YAML"
        raise BadConfig([f"{path}{line}: {what}"]) from None
    if not isinstance(config, dict):
        raise BadConfig([f"{path}: a mapping of keys is expected (study, server, grid, ...)"])
    return config


def resolve(config: Config, source: str) -> Config:
    """The config with every default filled in; BadConfig lists each problem as one line.

    Args:
        config: as read from YAML or as Snakemake merged it.
        source: the file(s) it came from, named in every message.
    """
    config = _text_keys(copy.deepcopy(config))
    unwritable = [f"{source}: {place}: {what}" for place, what in _unwritable(config)]
    if unwritable:
        raise BadConfig(unwritable)
    schema = validator("config")
    problems = [_schema_problem(e, source) for e in schema.iter_errors(config)]
    if problems:
        raise BadConfig(sorted(set(problems)))
    _fill(config, schema.schema)
    problems = [f"{source}: {p}" for p in cross_field_problems(config)]
    if problems:
        raise BadConfig(problems)
    return config


def _text_keys(value: Any) -> Any:
    """YAML keys such as `2:` are numbers; records are JSON, whose keys are text."""
    if isinstance(value, dict):
        return {str(k): _text_keys(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_text_keys(v) for v in value]
    return value


def _unwritable(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """What no record, command line or environment can hold, and where it stands."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            shown = str(key).encode("ascii", "backslashreplace").decode().replace("\0", "\\0")
            here = f"{place}.{shown}" if place else shown
            yield from ((here, f"in this name: {what}") for _, what in _unwritable(str(key)))
            yield from _unwritable(item, here)
    elif isinstance(value, float) and not math.isfinite(value):
        yield place, "not a finite number; write a number"
    elif isinstance(value, str) and "\0" in value:
        yield place, f"{_short(value)} has a NUL character, which ends every text of a server; take it out"
    elif isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        yield place, f"{_short(value)} has half a surrogate pair, which is no character; take it out"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 80 else shown[:77] + "..."


def _fill(value: Any, schema: Any) -> None:
    """Complete `value` in place with the schema's defaults, at every level."""
    if not isinstance(value, dict):
        return
    for key, sub in schema.get("properties", {}).items():
        if key not in value and "default" in sub:
            value[key] = copy.deepcopy(sub["default"])
        if key in value:
            _fill(value[key], sub)
            if isinstance(value[key], list) and "items" in sub:
                for item in value[key]:
                    _fill(item, sub["items"])
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        for key, item in value.items():
            if key not in schema.get("properties", {}):
                _fill(item, extra)


def _schema_problem(error: ValidationError, source: str) -> str:
    place = ".".join(str(p) for p in error.absolute_path)
    where = f"{source}: {place}" if place else source
    schema = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = sorted(schema.get("properties", {}))
        unknown = [k for k in error.instance if k not in known]
        hints = []
        for key in unknown:
            close = difflib.get_close_matches(str(key), known, 1)
            hints.append(f"unknown key {key!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
        return f"{where}: {'; '.join(hints)}; allowed: {', '.join(known)}"
    if error.validator == "required":
        return f"{where}: {error.message}"
    if error.validator == "pattern" and str(error.instance).startswith("-"):
        bare = str(error.instance).lstrip("-")
        return f"{where}: {error.instance!r}: write the flag without its dashes ({bare})"
    meaning = schema.get("description")
    if not meaning and isinstance(error.parent, ValidationError):
        meaning = error.parent.schema.get("description")  # type: ignore[union-attr]
    allowed = _allowed(error)
    return f"{where}: {_short(error.instance)} is not allowed; {allowed}" + (
        f" ({meaning})" if meaning else ""
    )


# Snakemake reads `--config a=1` as a number, but every value inside `--config "b={c: 1}"` as text.
_QUOTED = "; write it without quotes, and in a config file: --config makes text of what is inside a mapping"


def _would_pass_unquoted(error: ValidationError) -> bool:
    if not isinstance(error.instance, str):
        return False
    try:
        unquoted = yaml.safe_load(error.instance)
    except yaml.YAMLError:
        return False
    return not isinstance(unquoted, str) and validator("config").evolve(schema=error.schema).is_valid(
        unquoted
    )


def _allowed(error: ValidationError) -> str:
    value: Any = error.validator_value
    match error.validator:
        case "enum":
            return "one of " + ", ".join(map(str, value))
        case "type":
            expected = "expected " + (" or ".join(value) if isinstance(value, list) else str(value))
            return expected + (_QUOTED if _would_pass_unquoted(error) else "")
        case "minimum":
            return f"at least {value}"
        case "exclusiveMinimum":
            return f"more than {value}"
        case "maximum":
            return f"at most {value}"
        case "pattern":
            return f"expected text matching {value}"
        case "uniqueItems":
            return "no value may stand twice"
        case "minLength":
            return "expected text that is not empty"
        case "maxLength":
            return f"at most {value} characters"
        case "minItems":
            return f"at least {value} value(s)"
        case "propertyNames" | "not":
            return "this name cannot be used here"
        case "oneOf":
            return "none of the allowed forms"
        case _:
            return error.message[:200]
