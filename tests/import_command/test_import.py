"""Launch scripts as people write them, as config; what a script cannot say is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from quietgate.errors import BadInput
from quietgate.study.config import resolve
from quietgate.study.importing.import_command import import_command


def load(tmp_path: Path, text: str, name: str = "launch.sh") -> tuple[dict, list[str]]:
    path = tmp_path / name
    path.write_text(text)
    config, notes = import_command(path)
    assert yaml.safe_load(yaml.safe_dump(config)) == config
    return config, notes


STUDY = r"""
#!/bin/bash
NCCL_PROTO=LL NCCL_ALGO=Ring NCCL_BUFFSIZE=16777216 \
EAGLE3_PROFILE=1 \
~/ml-env/bin/python3 -m sglang.launch_server --model-path /shared/kimi --trust-remote-code --tp-size 8 \
  --mem-fraction-static 0.88 --host 0.0.0.0 --port 8000 \
  --speculative-algorithm EAGLE3 --speculative-draft-model-path /data/eagle3/4 \
  --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --speculative-num-steps 2
"""


def test_the_whole_of_a_launch(tmp_path):
    config, notes = load(tmp_path, STUDY, "kimi eagle.sh")
    assert notes == []
    assert config == {
        "study": "kimi-eagle",
        "server": {
            "python": "~/ml-env/bin/python3",
            "entry": ["-m", "sglang.launch_server"],
            "args": {
                "model-path": "/shared/kimi",
                "trust-remote-code": True,
                "tp-size": 8,
                "mem-fraction-static": 0.88,
                "host": "0.0.0.0",
                "port": 8000,
            },
            "env": {"EAGLE3_PROFILE": 1},
            "speculative": {
                "algorithm": "EAGLE3",
                "draft_model_path": "/data/eagle3/4",
                "topk": 1,
                "draft_tokens": 3,
            },
        },
        "grid": {"steps": [2], "nccl": ["imported"]},
        "nccl_profiles": {
            "imported": {
                "set": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_BUFFSIZE": 16777216},
                "note": "as in kimi eagle.sh",
            }
        },
    }
    resolve(config, "test")


SERVE = "python -m sglang.launch_server --model-path m"


def test_an_algorithm_for_all_reduce_alone(tmp_path):
    config, notes = load(tmp_path, f"export NCCL_ALGO='ring,tree;allreduce:tree'\n{SERVE} --tp 2\n")
    assert config["nccl_profiles"]["imported"]["set"] == {"NCCL_ALGO": "ring,tree;allreduce:tree"}
    assert notes == []


@pytest.mark.parametrize(
    ("flags", "args"),
    [
        ("--tp=8 --dtype=bfloat16", {"tp": 8, "dtype": "bfloat16"}),
        ("--cuda-graph-bs 1 2 4 --x", {"cuda-graph-bs": [1, 2, 4], "x": True}),
        ("--chunked-prefill-size -1", {"chunked-prefill-size": -1}),
        ("""--extra '{"a": true, "n": 16}'""", {"extra": '{"a": true, "n": 16}'}),
        (r'--extra "{\"a\": [1, 2]}"', {"extra": '{"a": [1, 2]}'}),
        ("--name 'two words'", {"name": "two words"}),
        ("--name two\\ words", {"name": "two words"}),
        ("--rev 007 --f 1.50 --g 1e3", {"rev": "007", "f": "1.50", "g": "1e3"}),
        ("--empty ''", {"empty": ""}),
        ("--a 1 --a 2", {"a": 2}),
        ("--under_score 1", {"under_score": 1}),
        ("--speculative", {"speculative": True}),
        ("--port ${PORT:-30000}", {"port": 30000}),
        ("--tp 2 # a comment", {"tp": 2}),
        ("--tp 2 > out.log 2>&1 &", {"tp": 2}),
        ("--tp 2 2>/dev/null | tee log", {"tp": 2}),
        ("--tp 2 && echo done", {"tp": 2}),
        ("--tp 2; sleep 5", {"tp": 2}),
    ],
)
def test_values_as_they_are_written(tmp_path, flags, args):
    config, _ = load(tmp_path, f"{SERVE} {flags}\n")
    assert config["server"]["args"] == {"model-path": "m", **args}
    assert config["grid"]["steps"] == [0]


@pytest.mark.parametrize(
    ("before", "python", "entry"),
    [
        ("python3 -m sglang.launch_server", "python3", ["-m", "sglang.launch_server"]),
        (
            "/opt/bin/python3.12 -u -m sglang.launch_server",
            "/opt/bin/python3.12",
            ["-u", "-m", "sglang.launch_server"],
        ),
        ("sglang serve", None, ["sglang", "serve"]),
        ("nohup python -m sglang.launch_server", "python", ["-m", "sglang.launch_server"]),
        ("exec env A=1 python -m sglang.launch_server", "python", ["-m", "sglang.launch_server"]),
        (
            "numactl --cpunodebind=0 python -m sglang.launch_server",
            None,
            ["numactl", "--cpunodebind=0", "python", "-m", "sglang.launch_server"],
        ),
        (
            "uv run python -m sglang.launch_server",
            None,
            ["uv", "run", "python", "-m", "sglang.launch_server"],
        ),
        ("$ python -m sglang.launch_server", "python", ["-m", "sglang.launch_server"]),
        ("python sglang/launch_server.py", "python", ["sglang/launch_server.py"]),
    ],
)
def test_programs(tmp_path, before, python, entry):
    config, _ = load(tmp_path, f"{before} --model-path m --tp 2\n")
    assert (config["server"]["python"], config["server"]["entry"]) == (python, entry)
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}


def test_exports_variables_and_arrays(tmp_path):
    config, notes = load(
        tmp_path,
        r"""
set -euo pipefail
MODEL=/models/a
export NCCL_PROTO=LL HF_HUB_OFFLINE="1"
NCCL_ALGO=Tree
export NCCL_ALGO
PRIVATE=x
unset NCCL_DEBUG HTTP_PROXY
ARGS=(--tp-size 8   # why
  --trust-remote-code)
ARGS+=(--port 1)
EXTRA="--dtype bfloat16 --x"
cd /opt/sg
python -m sglang.launch_server --model-path "$MODEL/b" "${ARGS[@]}" $EXTRA
""",
    )
    server, profile = config["server"], config["nccl_profiles"]["imported"]
    assert (
        server["args"]
        == {
            "model-path": "/models/a/b",
            "tp-size": 8,
            "trust-remote-code": True,
            "port": 1,
            "dtype": "bfloat16",
            "x": True,
        }
        or server["args"]["quoted"] is True
    )
    assert server["env"] == {"HF_HUB_OFFLINE": 1}
    assert server["unset_env"] == ["HTTP_PROXY"]
    assert server["cwd"] == "/opt/sg"
    assert profile["set"] == {"NCCL_PROTO": "LL", "NCCL_ALGO": "Tree"}
    assert profile["unset"] == ["NCCL_DEBUG"]
    assert notes == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("python -m sglang.launch_server --model-path $MODEL", "$MODEL"),
        (
            "python -m sglang.launch_server --model-path m --tp $(nvidia-smi -L | wc -l)",
            "$(nvidia-smi -L | wc -l)",
        ),
        ("PYTHONPATH=/x:$PYTHONPATH python -m sglang.launch_server --model-path m", "$PYTHONPATH"),
        ("docker run -e HF_TOKEN img python -m sglang.launch_server --model-path m", "HF_TOKEN"),
        ("docker run --env-file vars img python -m sglang.launch_server --model-path m", "--env-file vars"),
        ("source /venv/bin/activate\n" + SERVE, "source /venv/bin/activate"),
        ("ulimit -n 65535\n" + SERVE, "ulimit -n 65535"),
        (SERVE + " --nnodes 2 --node-rank 0", "one of 2 nodes"),
        (SERVE + "\n" + SERVE.replace(" m", " other"), "another server"),
        (SERVE + " --a 1 --a 2", "--a stands twice"),
        (SERVE + " --speculative-algorithm NGRAM", "without a number of steps"),
        (SERVE + " --speculative-algorithm NEXTN --speculative-num-steps 2", "--speculative-eagle-topk"),
        ("ssh node1 '" + SERVE + "'", "ssh node1"),
        ("srun --ntasks=1 " + SERVE, "srun"),
        (SERVE + " --cuda-graph-max-bs 2", "more than 2 requests"),
    ],
)
def test_what_cannot_be_known_is_named(tmp_path, text, named):
    config, notes = load(tmp_path, text + "\n")
    assert any(named in note for note in notes), notes
    assert config["server"]["args"]["model-path"] in ("m", "$MODEL")


def test_a_container_takes_its_variables_by_option_only(tmp_path):
    config, notes = load(
        tmp_path,
        r"""
OUTSIDE=1 docker run -d --rm -it --name x --gpus '"device=0,1"' --ipc=host --ulimit memlock=-1 \
  -e NCCL_P2P_LEVEL=SYS --env A="b c" -v /data:/data:ro -p 30000:30000 -w /serve \
  registry/sglang:v1 \
  python3 -m sglang.launch_server --model-path /data/m --tp 2
""",
    )
    assert config["server"]["env"] == {"A": "b c"}
    assert config["server"]["cwd"] == "/serve"
    assert config["server"]["args"] == {"model-path": "/data/m", "tp": 2}
    assert config["nccl_profiles"]["imported"]["set"] == {"NCCL_P2P_LEVEL": "SYS"}
    assert "registry/sglang:v1" in notes[0]


def test_a_shell_inside_a_container(tmp_path):
    config, _ = load(
        tmp_path,
        f"""docker run --gpus all -e NCCL_PROTO=LL img bash -lc "cd /x && NCCL_ALGO=Ring {SERVE} --tp 2"\n""",
    )
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert config["server"]["cwd"] == "/x"
    assert config["nccl_profiles"]["imported"]["set"] == {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}


def test_two_nodes_in_one_script(tmp_path):
    node = SERVE + " --tp 16 --nnodes 2 --node-rank {r} --dist-init-addr 10.0.0.1:5000 &\n"
    config, _ = load(tmp_path, "# node 0\n" + node.format(r=0) + "# node 1\nB=1 " + node.format(r=1))
    assert config["server"]["args"] == {
        "model-path": "m",
        "tp": 16,
        "nnodes": 2,
        "dist-init-addr": "10.0.0.1:5000",
    }
    assert config["server"]["nodes"] == [
        {"args": {"node-rank": 0}},
        {"args": {"node-rank": 1}, "env": {"B": 1}},
    ]


def test_abbreviated_and_other_speculative_flags(tmp_path):
    config, _ = load(
        tmp_path,
        SERVE + " --speculative-algo EAGLE3 --speculative-draft-model d --speculative_num_steps 3 "
        "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 "
        "--speculative-draft-model-quantization unquant\n",
    )
    assert config["grid"]["steps"] == [3]
    assert config["server"]["speculative"] == {
        "algorithm": "EAGLE3",
        "draft_model_path": "d",
        "topk": 4,
        "draft_tokens": 16,
        "args": {"speculative-draft-model-quantization": "unquant"},
    }


def test_broken_continuations(tmp_path):
    text = (
        "python -m sglang.launch_server \\\n  --model-path m \\ \n  # --tp 4 \\\n  --tp 8 \\\n\n\necho next\n"
    )
    assert load(tmp_path, text)[0]["server"]["args"] == {"model-path": "m", "tp": 8}
    text = "```bash\npython -m sglang.launch_server --model-path m\n  --tp 8\r\n```\n"
    assert load(tmp_path, text)[0]["server"]["args"] == {"model-path": "m", "tp": 8}


@pytest.mark.parametrize(
    "text", ["echo hi\n", "python -m vllm serve\n", "'unclosed", "$(", "((", "docker run", "bash -c"]
)
def test_no_launch_in_it(tmp_path, text):
    with pytest.raises(BadInput, match="no SGLang launch"):
        load(tmp_path, text)


def variables(config: dict) -> dict:
    return {**config["server"].get("env", {}), **config["nccl_profiles"]["imported"]["set"]}


@pytest.mark.parametrize(
    "text",
    [
        "pgrep -f sglang.launch_server && exit 1",
        "pkill -9 -f sglang.launch_server",
        "ps aux | grep sglang.launch_server | xargs kill",
        "echo python -m sglang.launch_server --model-path wrong",
        "python -m sglang.launch_server --help",
        "python -m sglang.bench_serving --backend sglang",
        "cat > other.sh <<'EOF'\npython -m sglang.launch_server --model-path wrong\nEOF",
    ],
)
def test_what_only_names_a_server_starts_none(tmp_path, text):
    config, _ = load(tmp_path, f"{text}\nNCCL_PROTO=LL {SERVE} --tp 2\n")
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert (config["server"]["python"], config["server"]["entry"]) == (
        "python",
        ["-m", "sglang.launch_server"],
    )
    assert variables(config) == {"NCCL_PROTO": "LL"}


def test_a_script_that_only_writes_another(tmp_path):
    config, notes = load(tmp_path, f"sbatch <<EOF\n#!/bin/bash\n#SBATCH -N1\nsrun {SERVE} --tp $TP\nEOF\n")
    assert config["server"]["args"] == {"model-path": "m", "tp": "$TP"}
    assert any(note.startswith("line 4: $TP") for note in notes)


@pytest.mark.parametrize(
    ("before", "set_variables"),
    [
        ("docker run -itd -eNCCL_PROTO=LL -v/a:/b -p80:80 --env=A=1 img", {"NCCL_PROTO": "LL", "A": 1}),
        ("podman run -e=NCCL_PROTO=LL -P img", {"NCCL_PROTO": "LL"}),
        ("docker compose run --rm -e NCCL_PROTO=LL service", {"NCCL_PROTO": "LL"}),
        ("srun -N1 --export=ALL,NCCL_PROTO=LL --ntasks 1", {"NCCL_PROTO": "LL"}),
        ("mpirun -np 1 -x NCCL_PROTO=LL --allow-run-as-root", {"NCCL_PROTO": "LL"}),
        ("mpiexec -genv NCCL_PROTO LL -n 1", {"NCCL_PROTO": "LL"}),
        ("kubectl exec -it pod -- env NCCL_PROTO=LL", {"NCCL_PROTO": "LL"}),
        ("NCCL_PROTO=LL exec -a name", {"NCCL_PROTO": "LL"}),
        ("ssh -p 22 user@node NCCL_PROTO=LL", {"NCCL_PROTO": "LL"}),
    ],
)
def test_wrappers_that_hand_variables_on(tmp_path, before, set_variables):
    config, _ = load(tmp_path, f"{before} {SERVE} --tp 2\n")
    assert (config["server"]["python"], config["server"]["entry"]) == (
        "python",
        ["-m", "sglang.launch_server"],
    )
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert variables(config) == set_variables


@pytest.mark.parametrize(
    "text",
    [
        f"tmux new-session -d -s s 'NCCL_PROTO=LL {SERVE} --tp 2'",
        f"screen -dmS s bash -c 'NCCL_PROTO=LL {SERVE} --tp 2'",
        f'CMD="NCCL_PROTO=LL {SERVE} --tp 2"\neval $CMD',
        f"if true; then export NCCL_PROTO=LL; fi\n{SERVE} --tp 2",
        "user@gpu:~/x$ NCCL_PROTO=LL python -m sglang.launch_server \\\n> --model-path m \\\n> --tp 2\n",
        "$ NCCL_PROTO=LL \\\n> python -m sglang.launch_server --model-path m --tp 2\n",
        "NCCL_PROTO=LL python -m sglang.launch_server --model-path m \\  # the model\n  --tp 2\n",
        "NCCL_PROTO=LL python -m sglang.launch_server --model-path m  # no backslash\n  --tp 2\n",
        f"NCCL_PROTO=LL {SERVE} \\\n  --tp 2 \\\n  > server.log 2>&1 &\n",
        f"Command: NCCL_PROTO=LL {SERVE} --tp 2",
    ],
)
def test_the_ways_people_start_and_paste_it(tmp_path, text):
    config, _ = load(tmp_path, text + "\n")
    assert (config["server"]["python"], config["server"]["entry"]) == (
        "python",
        ["-m", "sglang.launch_server"],
    )
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert variables(config) == {"NCCL_PROTO": "LL"}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("$((16 * 1024 * 1024))", 16777216),
        ("$((T / 2))", 4),
        ("$(( (T + 1) % 4 ))", 1),
        ("$((-7 % 4 + 9007199254740993 / 1))", 9007199254740990),
        ("${M##*/}", "name.tar"),
        ("${M%.tar}", "/models/name"),
        ("${A:-${B:-fallback}}", "fallback"),
        ('"${A:-"two words"}"', "two words"),
        ("${T:+yes}", "yes"),
        ("${A:=set} --again $A", "set"),
        ("$'a\\tb'", "a\tb"),
        ("${!T}", "${!T}"),
        ("${unknown:+yes}", "${unknown:+yes}"),
        ("$((unknown + 1))", "$((unknown + 1))"),
        ("$(hostname)", "$(hostname)"),
    ],
)
def test_expansions(tmp_path, word, value):
    config, notes = load(tmp_path, f"T=8\nM=/models/name.tar\n{SERVE} --x {word}\n")
    assert config["server"]["args"]["x"] == value
    assert any(word in note for note in notes) == (word == value)


@pytest.mark.parametrize(
    "before",
    [
        "PYTHONPATH=/x:$PYTHONPATH ",
        "export PYTHONPATH=/x:${PYTHONPATH}\n",
        "export PYTHONPATH=/x:${PYTHONPATH:-}\n",
        'export PYTHONPATH="/x${PYTHONPATH:+:$PYTHONPATH}"\n',
    ],
)
def test_a_list_that_is_prolonged_keeps_what_the_workflow_is_started_with(tmp_path, before):
    config, notes = load(tmp_path, before + SERVE + "\n")
    assert config["server"]["env"] == {"PYTHONPATH": "/x:{inherited}"}
    assert notes == ["line 1: $PYTHONPATH is the one that the workflow is started with ({inherited})"]


def test_values_that_are_there_but_not_known(tmp_path):
    flags = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-eagle-topk 1"
    flags += " --speculative-num-steps $S --speculative-num-draft-tokens $((S+1))"
    text = f"{SERVE} {flags} --config c.yaml\n"
    config, notes = load(tmp_path, text)
    assert config["grid"]["steps"] == [3]
    assert "--speculative-num-steps is $S, no number known here" in " ".join(notes)
    assert "--speculative-num-draft-tokens is $((S+1)), no number known here" in " ".join(notes)
    assert "not in the command" not in " ".join(notes)
    assert any(note.startswith("--config c.yaml: what that file sets is not read") for note in notes)


def test_what_a_sourced_file_sets_is_not_known(tmp_path):
    _, notes = load(tmp_path, f"source .env\n{SERVE}\n")
    assert notes == ["line 1: `source .env` is not run; add what it sets to server.env or the profile"]


COMPOSE = """
services:
  server:
    image: lmsysorg/sglang:v1
    env_file: .env
    environment:
      NCCL_PROTO: LL
      NCCL_DEBUG: ${NCCL_DEBUG:-INFO}
    entrypoint: python -m sglang.launch_server
    command: >
      --model-path m
      --tp 2
"""
COMPOSE_SHELL = """
services:
  server:
    environment: ["NCCL_PROTO=LL", "NCCL_DEBUG=INFO", "HF_TOKEN"]
    command: bash -c "python -m sglang.launch_server --model-path m --tp 2"
"""
POD = """
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: main
        command: [python, -m, sglang.launch_server]
        args: [--model-path, m, --tp, "2"]
        env:
        - {name: NCCL_PROTO, value: "LL"}
        - {name: NCCL_DEBUG, value: INFO}
        - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}
"""
POD_SHELL = """
kind: Pod
spec:
  containers:
  - command: [/bin/bash, -c]
    args:
    - |
      export NCCL_PROTO=LL
      python -m sglang.launch_server \\
        --model-path m \\
        --tp 2
    env:
    - name: NCCL_DEBUG
      value: INFO
"""


@pytest.mark.parametrize("text", [COMPOSE, COMPOSE_SHELL, POD, POD_SHELL])
def test_compose_files_and_manifests(tmp_path, text):
    config, notes = load(tmp_path, text, "deploy.yaml")
    assert (config["server"]["python"], config["server"]["entry"]) == (
        "python",
        ["-m", "sglang.launch_server"],
    )
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert variables(config) == {"NCCL_PROTO": "LL", "NCCL_DEBUG": "INFO"}
    assert any("container" in note for note in notes)
    assert any("HF_TOKEN" in note for note in notes) == ("HF_TOKEN" in text)
    assert any("env_file: .env" in note for note in notes) == ("env_file" in text)
