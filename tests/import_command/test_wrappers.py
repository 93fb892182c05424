"""What stands around the server's command: what stays in front, what is taken off, what hands variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from quietgate.study.importing.import_command import import_command

SERVE = "python -m sglang.launch_server --model-path m --tp 2"
PYTHON = ["python", "-m", "sglang.launch_server"]


def load(tmp_path: Path, text: str) -> tuple[dict, list[str]]:
    path = tmp_path / "launch.sh"
    path.write_text(text + "\n")
    return import_command(path)


def variables(config: dict) -> dict:
    return {**config["server"].get("env", {}), **config["nccl_profiles"]["imported"]["set"]}


@pytest.mark.parametrize(
    ("text", "front"),
    [
        (f"conda run -n sglang --no-capture-output {SERVE}", "conda run -n sglang --no-capture-output"),
        (f"conda run -n sglang bash -c 'export A=1; {SERVE}'", "conda run -n sglang"),
        (f"numactl -N 0 env A=1 {SERVE}", "numactl -N 0"),
        (f"nsys profile -o x numactl -m 0 bash -lc 'A=1 {SERVE}'", "nsys profile -o x numactl -m 0"),
        (f"srun -N1 numactl -N 0 env A=1 {SERVE}", "numactl -N 0"),
    ],
)
def test_what_stays_in_front(tmp_path, text, front):
    config, _ = load(tmp_path, text)
    assert config["server"]["python"] is None
    assert config["server"]["entry"] == [*front.split(), *PYTHON]
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert variables(config) == ({"A": 1} if "A=1" in text else {})


@pytest.mark.parametrize("program", ["uv run -m", "torchrun --nproc-per-node 1 -m", "accelerate launch -m"])
def test_modules_that_another_program_runs(tmp_path, program):
    config, _ = load(tmp_path, f"{program} sglang.launch_server --model-path m")
    assert config["server"]["args"] == {"model-path": "m"}
    assert config["server"]["entry"][-2:] == ["-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    "text",
    [
        f"seq 1 | xargs -I@ sh -c 'NCCL_PROTO=LL {SERVE}'",
        f"su - llm -c 'NCCL_PROTO=LL {SERVE}'",
        f"wsl -d Ubuntu -- bash -lc 'NCCL_PROTO=LL {SERVE}'",
        f"screen -S sglang -dm bash -lc 'NCCL_PROTO=LL {SERVE}'",
        f"tmux new -d -s sglang 'NCCL_PROTO=LL {SERVE}'",
        f"docker exec -d c bash -c '\nexport NCCL_PROTO=LL\n{SERVE} \\\n  > log 2>&1\n'",
        f'run() {{ ssh $1 "NCCL_PROTO=LL {SERVE}"; }}\nrun node1',
    ],
)
def test_a_shell_inside_anything(tmp_path, text):
    config, _ = load(tmp_path, text)
    assert config["server"]["python"] == "python"
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert variables(config) == {"NCCL_PROTO": "LL"}


@pytest.mark.parametrize("tool", ["pgrep -fc", "grep -c", "pkill -c"])
def test_what_only_looks_for_a_server_starts_none(tmp_path, tool):
    config, _ = load(tmp_path, f"{tool} 'python -m sglang.launch_server --model-path wrong'\n{SERVE}")
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}


def test_options_of_docker_that_are_not_known(tmp_path):
    text = (
        'ENVS=(-e NCCL_PROTO=LL -e A=1)\nOPTS="--gpus all -e B=2"\n'
        f'docker run --rm $OPTS "${{ENVS[@]}}" "${{MOUNTS[@]}}" $MORE $IMAGE {SERVE}'
    )
    config, notes = load(tmp_path, text)
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert variables(config) == {"NCCL_PROTO": "LL", "A": 1, "B": 2}
    assert any("${MOUNTS[@]} among the options of docker is not known" in note for note in notes)
    assert any("$MORE among the options of docker is not known" in note for note in notes)
    assert any("docker run $IMAGE:" in note for note in notes)


def test_an_image_that_is_not_known_before_an_entry_point(tmp_path):
    config, notes = load(
        tmp_path, 'docker run --entrypoint python "$IMAGE" -m sglang.launch_server --model-path m'
    )
    assert config["server"]["args"] == {"model-path": "m"}
    assert not any("among the options" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"srun --container-image=sg.sqsh {SERVE}", "in the image sg.sqsh"),
        (f"apptainer exec --nv --env-file vars sg.sif {SERVE}", "--env-file vars"),
        (f"enroot start --rw --env NCCL_PROTO=LL sg {SERVE}", "enroot sg"),
    ],
)
def test_images_are_named(tmp_path, text, named):
    config, notes = load(tmp_path, text)
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}
    assert any(named in note for note in notes), notes


@pytest.mark.parametrize(
    "before", ['sudo -E env "PATH=/x:$PATH"', 'export "PATH=/x:$PATH"\n', "env PATH=/x:$PATH"]
)
def test_a_list_that_is_prolonged_anywhere(tmp_path, before):
    config, _ = load(tmp_path, f"{before} {SERVE}")
    assert config["server"]["env"] == {"PATH": "/x:{inherited}"}


def test_the_model_as_sglang_serve_takes_it(tmp_path):
    config, notes = load(tmp_path, "sglang serve org/name --tp 2")
    assert config["server"]["entry"] == ["sglang", "serve"]
    assert config["server"]["args"] == {"model-path": "org/name", "tp": 2}
    assert notes == ["org/name stands before any flag, where sglang serve takes the model: --model-path"]


def test_a_here_document_knows_what_the_script_set(tmp_path):
    config, _ = load(tmp_path, f"M=m\ncat > x.sh <<EOF\n{SERVE} --name $M --rank \\$R\nEOF\nbash x.sh")
    assert config["server"]["args"] == {"model-path": "m", "tp": 2, "name": "m", "rank": "$R"}
    config, _ = load(tmp_path, f"M=m\ncat > x.sh <<'EOF'\n{SERVE} --name $M\nEOF\nbash x.sh")
    assert config["server"]["args"]["name"] == "$M"
