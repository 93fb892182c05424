"""Launches in other clothes than a shell script: pasted, in other languages, inside other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from quietgate.errors import BadInput
from quietgate.study.importing.import_command import import_command

SERVE = "python -m sglang.launch_server --model-path m --tp 2"


def load(tmp_path: Path, text: str, name: str = "launch.txt") -> tuple[dict, list[str]]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return import_command(path)


def variables(config: dict) -> dict:
    return {**config["server"].get("env", {}), **config["nccl_profiles"]["imported"]["set"]}


def assert_plain(config: dict) -> None:
    """It is `SERVE` with NCCL_PROTO=LL."""
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert (config["server"]["python"], config["server"]["entry"]) == (
        "python",
        ["-m", "sglang.launch_server"],
    )
    assert variables(config) == {"NCCL_PROTO": "LL"}


@pytest.mark.parametrize(
    "text",
    [
        f"I don't know why, but it's slow:\nNCCL_PROTO=LL {SERVE}\nThat's it.\n",
        f"Don't forget:\n```\nNCCL_PROTO=LL {SERVE}\n```\nIt isn't\n",
        f"# what's needed\nexport NCCL_PROTO=LL # don't\n{SERVE}  # it's two\necho a\n",
        f"| how | what |\n|---|---|\n| it | `NCCL_PROTO=LL {SERVE}` |\n",
        f"Run `NCCL_PROTO=LL {SERVE}`. Then wait.\n",
        f"[me@gpu7 ~]# export NCCL_PROTO=LL\n[me@gpu7 ~]# {SERVE}\n",
        f"bash-5.1# export NCCL_PROTO=LL\nbash-5.1# {SERVE}\n",
        "> NCCL_PROTO=LL python -m sglang.launch_server \\\n>   --model-path m \\\n>   --tp 2\n>\n> why?\n",
        f"!NCCL_PROTO=LL {SERVE}\n",
        f"export NCCL_PROTO=LL &amp;&amp; {SERVE} &gt; log 2&gt;&amp;1\n",
        f"\x1b[32m$ NCCL_PROTO=LL {SERVE}\x1b[0m\n",
        "NCCL_PROTO=LL python -m sglang.launch_server \\\\\n --model-path m \\\\\n --tp 2\n",
    ],
)
def test_pasted(tmp_path, text):
    config, _ = load(tmp_path, text)
    assert_plain(config)


def test_typography_is_read_as_what_was_typed(tmp_path):
    text = (
        "NCCL_PROTO=\u201cLL\u201d python -m\u00a0sglang.launch_server "
        "\u2014model-path \u2018m\u2019 \u200b\u2013tp 2\n"
    )
    config, notes = load(tmp_path, text)
    assert_plain(config)
    assert notes == ["line 1: typographic quotes, dashes or blanks are read as plain ones"]


def test_quotes_of_a_shell_stay_quotes(tmp_path):
    config, _ = load(tmp_path, f"""{SERVE} --x 'a"b' --y 'it'"'"'s' --z "don't"\n""")
    args = config["server"]["args"]
    assert (args["x"], args["y"]) == ('a"b', "it's")
    assert args["z"].replace("\u02bc", "'") == "don't"


def test_two_nodes_with_prose_between(tmp_path):
    node = "```bash\n{before}python -m sglang.launch_server --model-path m --nnodes 2 --node-rank {r}\n```\n"
    text = (
        "First\n" + node.format(before="", r=0) + "Second (don't wait):\n" + node.format(before="A=1 ", r=1)
    )
    config, _ = load(tmp_path, text)
    assert [n["args"]["node-rank"] for n in config["server"]["nodes"]] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        # PowerShell
        '$env:NCCL_PROTO = "LL"\n[string]$Model = "m"\npython -m '
        "sglang.launch_server `\n  --model-path $Model `\n"
        "  --tp 2\n",
        '$env:NCCL_PROTO="LL"; python -m sglang.launch_server --model-path m --tp 2\n',
        # cmd.exe
        "@echo off\nset NCCL_PROTO=LL\npython -m sglang.launch_server ^\n  --model-path m ^\n  --tp 2\n",
        f"set NCCL_PROTO=LL&& {SERVE}\n",
        # systemd
        f"[Service]\nEnvironment=NCCL_PROTO=LL\nExecStartPre=/bin/sleep 1\n"
        f"ExecStart=-{SERVE}\nRestart=always\n",
        # make
        "MODEL ?= m\nTP := 2\n\nserve: deps\n\t@NCCL_PROTO=LL python -m sglang.launch_server \\\n"
        "\t  --model-path $(MODEL) --tp ${TP}\n",
        # just
        'model := "m"\n\nserve tp="2":\n    @NCCL_PROTO=LL python -m '
        "sglang.launch_server --model-path {{model}} "
        "--tp {{ tp }}\n",
        # A notebook, a cookbook, a workflow, a task
        '{"cells": [{"source": ["!NCCL_PROTO=LL python -m sglang.launch_server '
        '\\\\\\n", " --model-path m --tp 2"]}]}',
        '{"a": {"launch": "export NCCL_PROTO=LL\\npython -m sglang.launch_server '
        '\\\\\\n --model-path m --tp 2"}}',
        f"jobs:\n  a:\n    env: {{NCCL_PROTO: LL}}\n    steps:\n    - run: |\n      "
        f"  sleep 1\n        {SERVE} &\n",
    ],
)
def test_other_languages(tmp_path, text):
    config, notes = load(tmp_path, text)
    assert_plain(config)
    assert notes == []


def test_a_task_hands_its_variables_to_its_script(tmp_path):
    text = (
        "envs:\n  MODEL: m\nrun: |\n  python -m sglang.launch_server --model-path $MODEL --node-rank $RANK\n"
    )
    config, notes = load(tmp_path, text, "task.yaml")
    assert config["server"]["args"] == {"model-path": "m", "node-rank": "$RANK"}
    assert notes[0].startswith("line 4: $RANK")


def test_windows_paths_keep_their_backslashes(tmp_path):
    config, _ = load(tmp_path, "python -m sglang.launch_server `\n  --model-path C:\\models\\q `\n  --tp 2\n")
    assert config["server"]["args"] == {"model-path": "C:\\models\\q", "tp": 2}


def test_what_a_unit_reads_from_a_file_is_not_known(tmp_path):
    text = f"[Service]\nWorkingDirectory=/opt/sg\nEnvironmentFile=-/etc/sg\nExecStart=/usr/bin/{SERVE}\n"
    config, notes = load(tmp_path, text, "sg.service")
    assert config["server"]["cwd"] == "/opt/sg"
    assert notes == ["line 3: `source /etc/sg` is not run; add what it sets to server.env or the profile"]


@pytest.mark.parametrize(
    "started",
    [
        'ENTRYPOINT ["python", "-m", "sglang.launch_server"]\nCMD ["--model-path", '
        '"m", \\\n     "--tp", "2"]\n',
        "CMD python -m sglang.launch_server --model-path $MODEL --tp ${TP}\n",
        'CMD ["old"]\nENTRYPOINT ["/bin/sh", "-c", "exec python -m '
        'sglang.launch_server --model-path m --tp 2"]\n',
    ],
)
def test_dockerfiles(tmp_path, started):
    text = (
        "# syntax=docker/dockerfile:1\nARG TP=2\nFROM base AS one\nRUN pip install "
        "it && \\\n    echo it's in\n"
        "FROM lmsysorg/sglang:v1\nENV MODEL m\nENV NCCL_PROTO=LL \\\n    X=1\nWORKDIR /w\n" + started
    )
    config, notes = load(tmp_path, text, "Dockerfile")
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert variables(config) == {"MODEL": "m", "NCCL_PROTO": "LL", "X": 1}
    assert config["server"]["cwd"] == "/w"
    assert any("the server ran in an image" in note for note in notes)


LIST = '["python", "-m", "sglang.launch_server", "--model-path", MODEL, "--tp", str(2)]'


@pytest.mark.parametrize(
    "program",
    [
        f'os.environ["NCCL_PROTO"] = "LL"\nsubprocess.Popen({LIST})\n',
        f'env = {{**os.environ, "NCCL_PROTO": "LL"}}\ncmd = {LIST}\nsubprocess.run(cmd, env=env)\n',
        'os.environ.update({"NCCL_PROTO": "LL"})\n'
        'cmd = [sys.executable, "-m", "sglang.launch_server"] + ["--model-path", '
        'MODEL]\ncmd += ["--tp", "2"]\n'
        "subprocess.run(cmd)\n",
        'cmd = f"NCCL_PROTO=LL python -m sglang.launch_server --model-path {MODEL} --tp 2"\nos.system(cmd)\n',
        f'subprocess.Popen(("{SERVE}").split(), env={{"NCCL_PROTO": "LL"}})\n',
        'launch_server_cmd("""\nNCCL_PROTO=LL python -m sglang.launch_server '
        '--model-path m \\\n --tp 2\n""")\n',
        f'"""Usage: {SERVE} --wrong"""\nprint("{SERVE} --wrong")\nrun("NCCL_PROTO=LL {SERVE}")\n',
    ],
)
def test_python_programs(tmp_path, program):
    config, _ = load(tmp_path, f'import os, subprocess, sys\nMODEL = "m"\n{program}', "serve.py")
    assert_plain(config)


def test_what_a_python_program_works_out_is_named(tmp_path):
    program = (
        "def start(model, *extra):\n"
        '    cmd = ["python", "-m", "sglang.launch_server", "--model-path", model, *extra]\n'
        '    if fast:\n        cmd.append("--enable-torch-compile")\n'
        '    cmd.extend(["--port", str(base + 1)])\n'
    )
    config, notes = load(tmp_path, program, "serve.py")
    assert config["server"]["args"] == {
        "model-path": "${model}",
        "enable-torch-compile": True,
        "port": "${base + 1}",
    }
    assert any("${model} is worked out by the program" in note for note in notes)
    assert any("${base + 1} is worked out by the program" in note for note in notes)
    assert any("${extra[@]} stands for flags" in note for note in notes)
    assert any("line 3: conditions (if)" in note for note in notes)


@pytest.mark.parametrize("place", ["<your-model>", "{{ model }}", "{model}", "path/<name>/x"])
def test_places_to_fill_in_are_named(tmp_path, place):
    config, notes = load(tmp_path, f'sglang serve --model-path "{place}" --host 1 --tp 2\n')
    assert config["server"]["args"] == {"model-path": place, "host": 1, "tp": 2}
    assert len(notes) == 1
    assert notes[0].endswith("is a place to fill in: put a value there")


def test_a_place_in_angle_brackets_is_no_redirection(tmp_path):
    config, _ = load(tmp_path, "sglang serve --model-path <model> --host 1 --tp 2 <in.txt >out.txt\n")
    assert config["server"]["args"] == {"model-path": "<model>", "host": 1, "tp": 2}


def test_json_values_are_no_places(tmp_path):
    _, notes = load(tmp_path, SERVE + """ --x '{"a": {"b": {}}, "c": [1, 2]}'\n""")
    assert notes == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("python -m sglang_router.launch_server --model-path m --dp 2\n", "behind a router"),
        ("--tp 8\n--ep 8\n", "flags stand in it without a program"),
        ("command: [python, -m, sglang.launch_server]\nargs: {{ .Values.args }}\n{{- end }}\n", "template"),
        ("bash scripts/serve.sh $MODEL\n", "it calls other scripts"),
    ],
)
def test_why_there_is_no_launch(tmp_path, text, hint):
    with pytest.raises(BadInput, match=hint):
        load(tmp_path, text)


def test_a_compose_file_that_refers_to_itself(tmp_path):
    with pytest.raises(BadInput, match="no SGLang launch"):
        load(tmp_path, "a: &a\n  b: *a\n", "compose.yaml")


def test_every_fenced_block_is_a_text_of_its_own(tmp_path):
    text = (
        "It's easy:\n```bash\nexport NCCL_PROTO=LL\n```\nthen\n"
        f"```bash\n{SERVE}\n```\nor, if you can't:\n"
        "```yaml\nservices:\n  a:\n    command: python -m sglang.launch_server --model-path other\n```\n"
        "```dockerfile\nFROM x\nCMD a\n```\n"
    )
    config, notes = load(tmp_path, text, "README.md")
    assert_plain(config)
    assert notes == ["line 13: another server; only the first one (line 7) is imported"]


def test_a_manifest_in_a_fence(tmp_path):
    text = "Use\n```yaml\ncontainers:\n- command: [python, -m, sglang.launch_server, --model-path, m]\n```\n"
    config, _ = load(tmp_path, text, "README.md")
    assert config["server"]["args"] == {"model-path": "m"}


@pytest.mark.parametrize(
    "text",
    [
        f'[program:sg]\ncommand=/usr/bin/{SERVE}\ndirectory=/opt\nenvironment=NCCL_PROTO=LL,A="1,2"\n',
        f"[Service]\nExecStart=/usr/bin/{SERVE}\nWorkingDirectory=/opt\nEnvironment=NCCL_PROTO=LL 'A=1,2'\n",
    ],
)
def test_the_order_in_a_unit_means_nothing(tmp_path, text):
    config, _ = load(tmp_path, text)
    assert config["server"]["cwd"] == "/opt"
    assert variables(config) == {"NCCL_PROTO": "LL", "A": "1,2"}


@pytest.mark.parametrize(
    "text",
    [
        f'[serve]\ncommand = "NCCL_PROTO=LL {SERVE}"\n',
        f"func main() {{ run('bash', '-c', \"NCCL_PROTO=LL {SERVE}\") }}\n",
    ],
)
def test_a_command_in_a_string_of_any_language(tmp_path, text):
    config, _ = load(tmp_path, text)
    assert_plain(config)


def test_what_an_editor_starts(tmp_path):
    text = """{
    // comment
    "configurations": [{
        "module": "sglang.launch_server", "python": "/venv/bin/python", "cwd": "/w",
        "env": {"A": "1"},
        "args": ["--model-path", "m",
            //"--no",
        ]
    }]}"""
    config, notes = load(tmp_path, text, "launch.json")
    assert (config["server"]["python"], config["server"]["cwd"]) == ("/venv/bin/python", "/w")
    assert config["server"]["args"] == {"model-path": "m"}
    assert variables(config) == {"A": 1}
    assert notes == []


def test_commands_of_a_list_are_lines(tmp_path):
    text = f"env: [A=1, TOKEN]\ncommands:\n- export NCCL_PROTO=LL\n- {SERVE} --name {{{{ name }}}}\n"
    config, notes = load(tmp_path, text, "service.yml")
    assert config["server"]["args"] == {"model-path": "m", "tp": 2, "name": "{{ name }}"}
    assert variables(config) == {"A": 1, "NCCL_PROTO": "LL"}
    assert notes == [
        "TOKEN: its value is not in the file; write it in server.env",
        "{{ name }} is a place to fill in: put a value there",
    ]


@pytest.mark.parametrize(
    "before",
    ["the users' model\n", 'a 27" screen\n', "options=(see below\n", "X=$((1 << N))\n", "---\n"],
)
def test_what_begins_and_never_ends_takes_nothing_with_it(tmp_path, before):
    config, _ = load(tmp_path, f"{before}NCCL_PROTO=LL {SERVE}\n---\nthat's it\n")
    assert_plain(config)


def test_a_quotation_of_prose_around_a_launch_is_named(tmp_path):
    _, notes = load(tmp_path, f"the users' model\n{SERVE}\nthe users' log\n")
    assert notes == ["line 2: an open quotation closes behind this line; what stands before is not read"]


@pytest.mark.parametrize(
    "text", ["Then use sglang serve to start it.\n", "python -m sglang.launch_server and wait\n"]
)
def test_a_sentence_that_names_the_program_is_no_launch(tmp_path, text):
    config, notes = load(tmp_path, f"{text}NCCL_PROTO=LL {SERVE}\n")
    assert_plain(config)
    assert notes == []


def test_a_quotation_that_never_ends_keeps_the_lines_before_it(tmp_path):
    text = "python -m sglang.launch_server --model-path m\n --tp 2 \\\n --name 'open\nusers' log\n--tp 's\n"
    config, _ = load(tmp_path, text)
    assert config["server"]["args"]["model-path"] == "m"


@pytest.mark.parametrize(
    "around",
    [
        "A=ab\n" + "A=$A$A\n" * 60 + SERVE,  # a value that doubles itself
        "- " * 50_000 + "\n" + SERVE,  # nested too deeply for any parser
        "\n" * 100_000 + SERVE,
        SERVE + " \\\n" + "\\\n" * 5_000,
        SERVE + "\n" + "(( " * 50_000,
    ],
)
def test_a_text_that_would_take_all_memory_or_time(tmp_path, around):
    config, _ = load(tmp_path, around)
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}


def test_a_text_too_long_for_a_launch_script_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"launch\.txt: 1\.2 million characters.* copy the command"):
        load(tmp_path, SERVE + "\nx" * 600_000)
