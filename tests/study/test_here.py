"""What a study names and this machine lacks: one line each, whatever the path."""

import json
import os

import pytest

from quietgate.measure import workload
from quietgate.study import Study, here


def lines(base, **server):
    """What is missing for the base study with these keys of its server, whose own names exist nowhere."""
    base["server"] |= server
    return here.missing(Study.from_config(base, "s.yaml"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    return tmp_path


@pytest.mark.parametrize("model", ["org/name", "name", "~/model", "./model", "s3://a/b/c"])
def test_a_model_that_is_here_or_on_a_hub(base, home, model):
    base["server"]["args"]["model-path"] = model
    assert not [line for line in lines(base) if "server.args.model-path" in line]


@pytest.mark.parametrize(
    "model", ["~/no", "./no", "/no/model", "a/b/c", "~nobody-here/model", "/" + "x" * 5000]
)
def test_a_model_that_is_nowhere(base, home, model):
    base["server"]["args"]["model-path"] = model
    [line] = [line for line in lines(base) if "server.args.model-path" in line]
    assert f"no model {model} here" in line


def test_a_user_whom_nobody_knows(base, home):
    base["benchmark"] = {"prompts": "~nobody-here/prompts.jsonl"}
    base["all_reduce"] = {"enabled": True, "python": "~nobody-here/python"}
    found = lines(base, python="~nobody-here/python", entry=["~nobody-here/serve.py"], cwd="~nobody-here")
    for key in ("server.python", "server.entry", "server.cwd", "benchmark.prompts", "all_reduce.python"):
        assert len([line for line in found if f"{key}: no " in line and "~nobody-here" in line]) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_that_may_not_be_entered(base, home):
    (home / "closed").mkdir(mode=0)
    base["server"]["args"]["model-path"] = "closed/models/one"
    assert "no model closed/models/one here" in "\n".join(lines(base))


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (["-Ximporttime", "no.py"], True),
        (["-X", "dev", "no.py"], True),
        (["-Wignore::m", "no.py"], True),
        (["-um", "no.py"], False),
        (["-c", "no.py"], False),
    ],
)
def test_the_script_behind_options_of_python(base, home, entry, told):
    assert any("no file no.py here" in line for line in lines(base, entry=entry)) is told


def test_a_relative_model_starts_at_the_folder_of_its_server(base, home):
    model = home / "servers" / "m"
    model.mkdir(parents=True)
    config = {"chat_template": "{% for m in messages %}<u>{{ m.content }}{% endfor %}"}
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    base["server"]["args"]["model-path"] = "./m"
    base["server"]["cwd"] = "~/servers"
    base["benchmark"] = {"prompt_count": 1, "chat_template": "auto"}
    study = Study.from_config(base, "s.yaml")
    assert not [line for line in here.missing(study) if "model-path" in line]
    assert workload.prompts_of(study)[0].text.startswith("<u>")
