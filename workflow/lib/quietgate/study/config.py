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
from quietgate.study.nccl_variables import problems as variable_problems

Config = dict[str, Any]

# Flags that the grid or the speculative section decides: a second opinion in server.args would win silently.
_GRID_FLAGS = {
    "speculative-num-steps": "grid.steps",
    "speculative-num-draft-tokens": "server.speculative.draft_tokens",
    "speculative-eagle-topk": "server.speculative.topk",
    "speculative-algorithm": "server.speculative.algorithm",
    "speculative-draft-model-path": "server.speculative.draft_model_path",
    "speculative-draft-model": "server.speculative.draft_model_path",
}
# Algorithms that draft without a model of their own.
_NO_DRAFT_MODEL = {"NGRAM", "LOOKAHEAD", "NEXTN", "EAGLE"}


def load(path: Path) -> Config:
    """Read a YAML config file; BadConfig names the file and the line that does not parse."""
    try:
        text = Path(path).read_text()
    except OSError as e:
        raise BadConfig([f"{path}: cannot be read ({e.strerror})"]) from None
    except UnicodeDecodeError:
        raise BadConfig([f"{path}: not a text file; a study's config is YAML"]) from None
    try:
        config = yaml.safe_load(text)
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
    endless = list(_not_finite(config))
    if endless:
        raise BadConfig([f"{source}: {place}: not a finite number" for place in endless])
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


def _not_finite(value: Any, place: str = "") -> Iterator[str]:
    """Where a config has .nan or .inf, which no record can hold."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _not_finite(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, float) and not math.isfinite(value):
        yield place


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
    shown = repr(error.instance)
    shown = shown if len(shown) < 80 else shown[:77] + "..."
    allowed = _allowed(error)
    return f"{where}: {shown} is not allowed; {allowed}" + (f" ({meaning})" if meaning else "")


def _allowed(error: ValidationError) -> str:
    value: Any = error.validator_value
    match error.validator:
        case "enum":
            return "one of " + ", ".join(map(str, value))
        case "type":
            return "expected " + (" or ".join(value) if isinstance(value, list) else str(value))
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
        case "minItems":
            return f"at least {value} value(s)"
        case "propertyNames" | "not":
            return "this name cannot be used here"
        case "oneOf":
            return "none of the allowed forms"
        case _:
            return error.message[:200]


def cross_field_problems(config: Config) -> list[str]:
    """Rules that need more than one key, as "key: what is wrong; what to do" lines."""
    return [
        *_speculation(config),
        *_profiles(config),
        *_axes(config),
        *_entry(config),
        *_reference(config),
        *_lengths(config),
    ]


def _speculation(config: Config) -> Iterator[str]:
    spec, steps = config["server"]["speculative"], config["grid"]["steps"]
    for key in config["server"]["args"]:
        name = key.replace("_", "-")
        if name in _GRID_FLAGS:
            yield f"server.args.{key}: decided by {_GRID_FLAGS[name]}; write it there"
    drafting = [s for s in steps if s > 0]
    if not drafting:
        return
    if spec["draft_model_path"] is None and spec["algorithm"].upper() not in _NO_DRAFT_MODEL:
        yield (
            f"server.speculative.draft_model_path: missing, but grid.steps has {drafting}; "
            f"{spec['algorithm']} needs a draft model (SGLang would load the target as its own draft)"
        )
    topks = _values_of(config, "speculative-eagle-topk") or [spec["topk"]]
    for topk in topks:
        if isinstance(topk, bool) or not isinstance(topk, int) or topk < 1:
            yield f"grid.axes: {topk!r} is no number of branches for speculative-eagle-topk; 1 or more"
            return
    for topk in topks:
        for step in drafting:
            problem = _draft_tokens_problem(spec["draft_tokens"], step, int(topk))
            if problem:
                yield f"server.speculative.draft_tokens: {problem}"


def _values_of(config: Config, flag: str) -> list[Any]:
    for axis in config["grid"]["axes"].values():
        if axis.get("flag", "").replace("_", "-") == flag:
            return [v for v in axis["values"] if v is not None]
    return []


def _draft_tokens_problem(draft_tokens: Any, steps: int, topk: int) -> str | None:
    tokens = draft_tokens
    if isinstance(draft_tokens, dict):
        tokens = draft_tokens.get(str(steps))
        if tokens is None:
            return f"no number for steps {steps}; add `{steps}: n`"
    if tokens == "auto":
        if topk > 1:
            return (
                f"auto is steps + 1 and holds for topk 1; with topk {topk} give a number (or one per steps)"
            )
        return None
    if topk == 1 and tokens != steps + 1:
        return (
            f"{tokens} at steps {steps}: with topk 1 SGLang silently makes it {steps + 1}; "
            f"write {steps + 1} or auto"
        )
    tree = 1 + topk + (steps - 1) * topk * topk
    if tokens > tree:
        return f"{tokens} at steps {steps}, topk {topk}: the draft tree has only {tree} tokens"
    return None


def _profiles(config: Config) -> Iterator[str]:
    known = config["nccl_profiles"]
    for name in config["grid"]["nccl"]:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            yield f"grid.nccl: no profile {name!r} in nccl_profiles{hint}; there are: {', '.join(known)}"
    for name, profile in known.items():
        for variable in profile["unset"]:
            if variable in profile["set"]:
                yield f"nccl_profiles.{name}: {variable} is both set and unset"
    places = [(f"nccl_profiles.{n}.set", p["set"]) for n, p in known.items()]
    places.append(("server.env", config["server"]["env"]))
    places += [(f"server.nodes.{i}.env", n["env"]) for i, n in enumerate(config["server"]["nodes"])]
    for name, axis in config["grid"]["axes"].items():
        values = axis["values"] if "variable" in axis else []
        places += [(f"grid.axes.{name}", {axis["variable"]: v}) for v in values if v not in (None, False)]
    for place, variables in places:
        for variable, value in variables.items():
            for problem in variable_problems(variable, str(value)):
                yield f"{place}.{variable}: {problem}"


def _axes(config: Config) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name, axis in config["grid"]["axes"].items():
        target = axis.get("flag") or axis.get("variable")
        if target in seen:
            yield f"grid.axes.{name}: {target} is already the axis {seen[target]!r}"
        seen[target] = name
        if axis.get("flag", "").replace("_", "-") in ("speculative-num-steps",):
            yield f"grid.axes.{name}: steps are the axis grid.steps"
        if len({repr(v) for v in axis["values"]}) < len(axis["values"]):
            yield f"grid.axes.{name}.values: a value stands twice"


def _entry(config: Config) -> Iterator[str]:
    server = config["server"]
    entry = server["entry"]
    if server["python"] is None and entry is not None and entry[0].startswith("-"):
        yield "server.entry: starts with an option, but server.python is null; name the interpreter"


def _reference(config: Config) -> Iterator[str]:
    reference, grid = config["reference"], config["grid"]
    if "steps" in reference and reference["steps"] not in grid["steps"]:
        yield f"reference.steps: {reference['steps']} is not in grid.steps {grid['steps']}"
    if "nccl" in reference and reference["nccl"] not in grid["nccl"]:
        yield f"reference.nccl: {reference['nccl']!r} is not in grid.nccl {grid['nccl']}"
    for name, value in reference.get("axes", {}).items():
        if name not in grid["axes"]:
            yield f"reference.axes.{name}: no such axis; there are: {', '.join(grid['axes']) or 'none'}"
        elif value not in grid["axes"][name]["values"]:
            yield f"reference.axes.{name}: {value!r} is not among its values {grid['axes'][name]['values']}"


def _lengths(config: Config) -> Iterator[str]:
    limit = _number(config["server"]["args"], "max-running-requests")
    top = max(config["benchmark"]["concurrency"])
    if limit is not None and top > limit:
        yield (
            f"benchmark.concurrency: {top} is more than server.args.max-running-requests {limit:g}; "
            "requests would queue and the numbers be those of the queue"
        )


def _number(args: dict[str, Any], flag: str) -> float | None:
    for key, value in args.items():
        if key.replace("_", "-") == flag:
            try:
                return float(value)
            except (TypeError, ValueError):
                return None
    return None
