"""Config errors: found before anything starts, one line each, with place, value, what is allowed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from quietgate.errors import BadConfig
from quietgate.records import SCHEMAS, validator
from quietgate.study import Study
from quietgate.study.config import load
from quietgate.study.here import missing

LIBRARY = Path(__file__).parents[2] / "workflow" / "lib"
CONFIGS = sorted((Path(__file__).parents[2] / "config").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_shipped_configs_are_valid(path):
    study = Study.from_file(path)
    assert study.launches


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda p: p.stem)
def test_schemas_are_schemas(path):
    Draft202012Validator.check_schema(validator(path.name.removesuffix(".schema.json")).schema)


def problems(config):
    with pytest.raises(BadConfig) as caught:
        Study.from_config(config, "my.yaml")
    for line in caught.value.problems:
        assert line.startswith("my.yaml: "), line
        assert "\n" not in line
    return caught.value.problems


def put(config, dotted, value):
    *path, last = dotted.split("/")
    for key in path:
        config = config.setdefault(key, {})
    config[last] = value


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("grid/step", [1], ["grid: unknown key 'step'", "did you mean 'steps'"]),
        ("server/arg", {}, ["server: unknown key 'arg'", "args"]),
        ("server/args/--tp-size", 2, ["server.args", "'--tp-size'", "without its dashes (tp-size)"]),
        ("benchmark/repeats", "three", ["benchmark.repeats", "'three'", "expected integer"]),
        ("benchmark/repeats", "2", ["benchmark.repeats", "'2'", "without quotes", "--config"]),
        ("capture", {"enabled": "false"}, ["capture.enabled", "'false'", "without quotes"]),
        ("benchmark/concurrency", [0], ["benchmark.concurrency.0", "at least 1"]),
        ("grid/steps", [-1], ["grid.steps.0", "-1", "at least 0"]),
        ("grid/steps", [], ["grid.steps", "at least 1 value"]),
        ("grid/nccl", ["ll-rin"], ["grid.nccl", "'ll-rin'", "did you mean 'll-ring'"]),
        ("grid/axes", {"x": {"values": [1]}}, ["grid.axes.x", "flag", "variable"]),
        ("server/args/speculative-num-steps", 3, ["server.args.speculative-num-steps", "grid.steps"]),
        ("server/speculative/draft_tokens", 5, ["draft_tokens", "5 at steps 2", "write 3 or auto"]),
        ("server/speculative/topk", 4, ["draft_tokens", "auto", "topk 4"]),
        ("server/speculative/draft_model_path", None, ["draft_model_path", "missing", "EAGLE3"]),
        ("server/entry", ["-m", "x"], None),
        ("server/args/model-path", "embedded:targt", ["no model embedded:targt", "embedded:target, "]),
        ("nccl_profiles/ll-ring/set/NCCL_PROT", "LL", ["NCCL_PROT", "NCCL_PROTO"]),
        ("nccl_profiles/ll-ring/set/NCCL_BUFFSIZE", "16M", ["NCCL_BUFFSIZE", "16M", "16"]),
        ("nccl_profiles/ll-ring/set/NCCL_P2P_LEVEL", "sys", ["NCCL_P2P_LEVEL", "SYS"]),
        ("nccl_profiles/ll-ring/unset", ["NCCL_PROTO"], ["NCCL_PROTO", "both set and unset"]),
        ("server/env/NCCL_PROTO", "LLL", ["server.env.NCCL_PROTO", "LLL"]),
        ("reference", {"steps": 7}, ["reference.steps", "7", "[0, 2]"]),
        ("reference", {"axes": {"tp": 1}}, ["reference.axes.tp", "no such axis"]),
        ("study", "../escape", ["study", "'../escape'"]),
        ("benchmark/temperature", float("inf"), ["benchmark.temperature", "not a finite number"]),
        ("grid/axes", {"p": {"variable": "NCCL_PROT", "values": ["LL"]}}, ["grid.axes.p", "NCCL_PROTO"]),
        ("grid/axes", {"k": {"flag": "speculative-eagle-topk", "values": ["a"]}}, ["'a'", "topk"]),
        ("grid/axes", {"status": {"flag": "x", "values": [1]}}, ["grid.axes", "status"]),
        (
            "grid/axes",
            {"tokens": {"flag": "speculative-num-draft-tokens", "values": [3, 5]}},
            ["grid.axes.tokens: 5 at steps 2", "SGLang silently makes it 3", "leave the axis out"],
        ),
        (
            "grid/axes",
            {"tokens": {"flag": "speculative_num_draft_tokens", "values": [3, None]}},
            ["grid.axes.tokens.values: None", "2 or more"],
        ),
        (
            "grid/axes",
            {
                "topk": {"flag": "speculative-eagle-topk", "values": [1, 4]},
                "tokens": {"flag": "speculative-num-draft-tokens", "values": [8]},
            },
            ["grid.axes.tokens: 8 at steps 2", "with topk 1"],
        ),
        ("server/args/model_path", "/other", [".args.model_path: the same flag as", "args.model-path"]),
        ("server/args/model", "/other", ["server.args.model:", "server.args.model-path"]),
        ("server/nodes", [{"args": {"tp_size": 4}}], ["server.nodes.0.args.tp_size", "server.args.tp-size"]),
        ("server/nodes", [{"args": {"speculative_num_steps": 4}}], ["server.nodes.0.args.", "grid.steps"]),
        ("server/speculative/args/speculative-num-draft-tokens", 5, [".speculative.args.", "draft_tokens"]),
        (
            "grid/axes",
            {"a": {"flag": "max-x", "values": [1]}, "b": {"flag": "max_x", "values": [2]}},
            ["grid.axes.b: max_x is already the axis 'a'"],
        ),
        ("study", "abc\n", ["study: 'abc\\n'", "expected text matching"]),
        ("grid/axes", {"x\n": {"flag": "x", "values": [1]}}, ["grid.axes", "'x\\n'"]),
        ("server/env/A\n", "1", ["server.env", "'A\\n'"]),
        ("server/python", "", ["server.python: ''", "not empty", "the interpreter"]),
        ("server/entry", [""], ["server.entry.0: ''", "not empty"]),
        ("benchmark/prompts", "", ["benchmark.prompts: ''", "not empty"]),
        ("study", "x" * 81, ["study", "at most 80 characters"]),
        ("server/env/A", "x\0y", ["server.env.A:", "NUL"]),
        ("server/args/x", ["a", "b\0"], ["server.args.x.1:", "NUL"]),
        ("server/args/j", {"k\0": 1}, ["server.args.j.k\\0: in this name", "NUL"]),
        ("title", "\ud800", ["title:", "surrogate"]),
    ],
)  # fmt: skip
def test_one_clear_line(base, place, value, words):
    put(base, place, value)
    if words is None:
        assert Study.from_config(base).cells
        return
    found = problems(base)
    assert any(all(word in line for word in words) for line in found), found


def test_a_tree_of_drafts_may_have_an_axis_of_tokens(base):
    put(base, "server/speculative/topk", 4)
    put(base, "grid/axes", {"tokens": {"flag": "speculative_num_draft_tokens", "values": [8, 16]}})
    study = Study.from_config(base)
    asked = {
        int(argv[argv.index("--speculative-num-draft-tokens") + 1])
        for cell in study.cells
        if cell.steps
        for argv in [study.resolved(cell)["processes"][0]["argv"]]
    }
    assert asked == {8, 16}


def test_an_axis_takes_the_place_of_its_flag_under_any_name(base):
    put(base, "grid/axes", {"tp": {"flag": "tp", "values": [1, 4]}})
    study = Study.from_config(base)
    for cell in study.cells:
        [flag] = [word for word in study.resolved(cell)["processes"][0]["argv"] if word.startswith("--tp")]
        assert flag == "--tp-size"


def test_a_target_with_layers_of_its_own_needs_no_draft_model(base):
    put(base, "server/speculative/draft_model_path", None)
    put(base, "server/speculative/algorithm", "EAGLE")
    argv = Study.from_config(base).resolved(Study.from_config(base).cells[1])["processes"][0]["argv"]
    assert "--speculative-draft-model-path" not in argv
    assert "EAGLE" in argv


def test_what_this_machine_lacks_is_named_apart(base):
    put(base, "nccl_profiles/ll-ring/set/NCCL_GRAPH_FILE", "/no/such.xml")
    put(base, "benchmark/prompts", "/no/such.jsonl")
    put(base, "server/cwd", "/no/such/folder")
    lines = missing(Study.from_config(base, "my.yaml"))
    assert all(line.startswith("my.yaml: ") for line in lines)
    for word in ("server.python", "NCCL_GRAPH_FILE", "/no/such.jsonl", "/no/such/folder"):
        assert sum(word in line for line in lines) == 1, (word, lines)


HERE = str(Path(__file__).parent)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("server/args/model-path", "/no/model", "server.args.model-path: no model /no/model here"),
        ("server/args/model-path", "../no-model", "no model ../no-model here"),
        ("server/args/model-path", "~/no-model", "no model ~/no-model here"),
        ("server/args/model-path", "resources/no-model", "no model resources/no-model here"),
        ("server/args/model-path", "models/a/no-model", "no model models/a/no-model here"),
        ("server/args/tokenizer-path", "/no/tokens", "server.args.tokenizer-path: no model /no/tokens here"),
        ("server/args/model-path", "org/name", None),
        ("server/args/model-path", "gpt2", None),
        ("server/args/model-path", "s3://bucket/a/b", None),
        ("server/args/model-path", "embedded:target", None),
        ("server/args/model-path", HERE, None),
        ("server/speculative/draft_model_path", "/no/draft", "draft_model_path: no model /no/draft here"),
        ("server/speculative/draft_model_path", "embedded:eagle3", None),
        (
            "server/nodes",
            [{"args": {"model-path": "/no/node"}}],
            "server.nodes.0.args.model-path: no model /no/node",
        ),
        (
            "grid/axes",
            {"target": {"flag": "model-path", "values": ["/no/axis", HERE]}},
            "grid.axes.target.values: no model /no/axis here",
        ),
        ("server/entry", ["/no/serve.py"], "server.entry: no file /no/serve.py here"),
        ("server/entry", ["-u", "-X", "dev", "serve.py"], "server.entry: no file serve.py here"),
        ("server/entry", ["-m", "serve"], None),
        ("server/entry", ["-um", "serve"], None),
        ("server/entry", [__file__, "serve"], None),
    ],
)
def test_models_and_scripts_are_looked_for_before_a_launch(base, path, value, says):
    base["server"]["python"] = sys.executable
    base["server"]["args"]["model-path"] = base["server"]["speculative"]["draft_model_path"] = HERE
    put(base, path, value)
    lines = missing(Study.from_config(base, "my.yaml"))
    assert len(lines) == (says is not None), lines
    assert all(says in line for line in lines)


def test_paths_are_those_of_the_servers_own_folder(base, tmp_path):
    for name in ("bin/python", "serve.py", "m/o/d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    base["server"] |= {"python": "bin/python", "entry": ["serve.py"], "cwd": str(tmp_path)}
    base["server"]["args"]["model-path"] = base["server"]["speculative"]["draft_model_path"] = "m/o/d"
    assert missing(Study.from_config(base)) == []


def test_a_path_inside_a_container_is_not_looked_for_outside(base):
    base["server"] |= {"python": None, "entry": ["docker", "run", "image"]}
    assert not any("model" in line for line in missing(Study.from_config(base)))


def test_a_draft_that_no_cell_uses_may_be_missing(base):
    base["grid"]["steps"] = [0]
    assert not any("draft" in line for line in missing(Study.from_config(base)))


def test_every_problem_is_reported_at_once(base):
    put(base, "benchmark/repeats", 0)
    put(base, "grid/seed", 1)
    assert len(problems(base)) == 2


def test_concurrency_above_the_servers_limit(base):
    put(base, "benchmark/concurrency", [1, 64])
    put(base, "server/args/max-running-requests", 48)
    assert "64 is more than" in problems(base)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("study: [", ":1"),
        ("- a\n- b\n", "a mapping of keys is expected"),
        ("", "a mapping of keys is expected"),
        ("study: x\n  grid: {}\n", ":2"),
        ("study: x\ngrid: {}\nstudy: y\n", ":3: study stands here a second time"),
        ("server:\n  env: {A: 1}\n  env: {B: 2}\n", ":3: env stands here a second time"),
        ("[" * 20000, "nested too deeply"),
    ],
)
def test_unreadable_yaml(tmp_path, text, words):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=r"c\.yaml") as caught:
        load(path)
    assert words in str(caught.value)


def test_binary_and_missing_files(tmp_path):
    path = tmp_path / "c.yaml"
    with pytest.raises(BadConfig, match="cannot be read"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadConfig, match="not a text file"):
        load(path)
    with pytest.raises(BadConfig, match="cannot be read"):
        load(tmp_path)


def test_a_config_is_utf_8_whatever_the_locale(tmp_path):
    (tmp_path / "c.yaml").write_bytes("title: Größe 测试\n".encode())
    code = "from quietgate.study.config import load; print(ascii(load('c.yaml')['title']))"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, **plain, "PYTHONPATH": str(LIBRARY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ascii("Größe 测试")


def test_yaml_numbers_as_keys_and_defaults(base):
    base["server"]["speculative"]["draft_tokens"] = {2: 3}
    study = Study.from_config(base)
    assert study.config["server"]["speculative"]["draft_tokens"] == {"2": 3}
    assert study.config["benchmark"]["repeats"] == 3
    assert study.config["nccl_profiles"]["default"] == {"set": {}, "unset": [], "note": ""}
