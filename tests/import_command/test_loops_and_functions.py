"""What a script repeats or calls, and what it decides: followed where it is written down, named where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from quietgate.study.importing.import_command import import_command

SERVE = "python -m sglang.launch_server --model-path m"


def load(tmp_path: Path, text: str) -> tuple[dict, list[str]]:
    path = tmp_path / "launch.sh"
    path.write_text(text + "\n")
    return import_command(path)


@pytest.mark.parametrize(
    "values",
    ["0 1 2", "{0..2}", "$(seq 0 2)", "$(seq 0 $((N - 1)))", "`seq 0 2`", '"${RANKS[@]}"', "${!RANKS[@]}"],
)
def test_a_loop_over_ranks_gives_the_nodes(tmp_path, values):
    loop = f"for r in {values}; do\n  PORT=$((9000 + r)) {SERVE} --node-rank $r &\ndone\nwait"
    text = f"N=3\nRANKS=(0 1 2)\n{loop}"
    config, notes = load(tmp_path, text)
    assert [node["args"] for node in config["server"]["nodes"]] == [{"node-rank": r} for r in range(3)]
    assert config["server"]["env"] == {"PORT": 9000}
    assert config["server"]["nodes"][2]["env"] == {"PORT": 9002}
    assert notes == ["3 nodes: the workflow starts all of them on the machine it runs on"]


def test_of_replicas_the_first_is_taken_and_the_others_are_counted(tmp_path):
    config, notes = load(tmp_path, f"for g in 0 1 2 3\ndo\n  {SERVE} --port $((30000 + g)) &\ndone")
    assert config["server"]["args"] == {"model-path": "m", "port": 30000}
    assert notes == ["line 3: 3 other servers; only the first one (line 3) is imported"]


def test_a_loop_over_values_that_are_not_known(tmp_path):
    config, notes = load(tmp_path, f"for g in $GPUS; do {SERVE} --port $((30000 + g)); done")
    assert config["server"]["args"]["port"] == "$((30000 + g))"
    assert any("$((30000 + g)) is not run" in note for note in notes)
    assert any("conditions (for) are not followed" in note for note in notes)


def test_loops_within_loops_end(tmp_path):
    loops = "for a in {0..999}; do for b in {0..999}; do for c in {0..999}; do echo; done; done; done"
    config, _ = load(tmp_path, f"{SERVE} --tp 2\n{loops}")
    assert config["server"]["args"] == {"model-path": "m", "tp": 2}


FUNCTION = """
start() {
  local rank=$1 port=${2:-30000}
  %s --tp $TP --node-rank "$rank" --port $port "${@:3}"
}
"""


def test_a_function_is_read_where_it_is_called(tmp_path):
    text = FUNCTION % SERVE + "TP=8\nfor r in 0 1; do start $r; done"
    config, _ = load(tmp_path, text)
    assert config["server"]["args"] == {"model-path": "m", "tp": 8, "port": 30000}
    assert [node["args"]["node-rank"] for node in config["server"]["nodes"]] == [0, 1]


def test_a_function_that_nothing_calls_is_read_all_the_same(tmp_path):
    config, notes = load(tmp_path, "TP=8" + FUNCTION % SERVE)
    assert config["server"]["args"]["tp"] == 8
    assert config["server"]["args"]["node-rank"] == "$1"
    assert any("$1 comes from your shell" in note for note in notes)


def test_arguments_of_a_function(tmp_path):
    config, _ = load(tmp_path, f'run() {{ "$@" --port $#; }}\nrun {SERVE} --name "two words"')
    assert config["server"]["args"] == {"model-path": "m", "name": "two words", "port": 7}


@pytest.mark.parametrize("text", ["f() { f; }; f", "f() { g; }; g() { f; }; f", "X='eval $X'; eval $X"])
def test_what_calls_itself_ends(tmp_path, text):
    config, _ = load(tmp_path, f"{text}\n{SERVE}")
    assert config["server"]["args"] == {"model-path": "m"}


def test_conditions_are_named_once_and_only_before_the_launch(tmp_path):
    text = f"""
if [ -n "$A" ]; then X=1; else X=2; fi
[[ $B == 1 ]] && ARGS+=(--enable-metrics)
{SERVE} --tp $X "${{ARGS[@]}}" &
while ! curl -s localhost; do sleep 1; done
"""
    config, notes = load(tmp_path, text)
    assert config["server"]["args"] == {"model-path": "m", "tp": 2, "enable-metrics": True}
    assert notes == [
        "lines 2, 3: conditions (if, [[) are not followed: every branch is read, and what stands last counts"
    ]


def test_only_what_is_left_in_the_config_is_named(tmp_path):
    config, notes = load(tmp_path, f"echo $! $HOSTNAME $(date)\n{SERVE} --tp $TP\necho $?")
    assert config["server"]["args"]["tp"] == "$TP"
    assert len(notes) == 1
    assert "$TP" in notes[0]


def test_an_unknown_value_with_blanks_stays_one_value(tmp_path):
    config, _ = load(tmp_path, f"IP=$(hostname -I | cut -d' ' -f1)\n{SERVE} --dist-init-addr $IP:5000")
    assert config["server"]["args"]["dist-init-addr"] == "$(hostname -I | cut -d' ' -f1):5000"


@pytest.mark.parametrize(
    ("flags", "args"),
    [
        ('--tp 2 "$@"', {"tp": 2}),
        ("--tp 2 $EXTRA", {"tp": 2}),
        ('"${ARGS[@]}" --tp 2', {"tp": 2}),
        ("--enable-metrics $EXTRA --tp 2", {"enable-metrics": True, "tp": 2}),
        ("--tp 2 ${KEY:+--api-key $KEY}", {"tp": 2}),
    ],
)
def test_unknown_words_that_are_no_value_are_left_out_and_named(tmp_path, flags, args):
    config, notes = load(tmp_path, f"{SERVE} {flags}")
    assert config["server"]["args"] == {"model-path": "m", **args}
    assert len(notes) == 1
    assert "stands for flags that are not known here and is left out" in notes[0]


def test_arrays(tmp_path):
    text = f"""
NODES=(a b)
declare -a ARGS=(--host "${{NODES[0]}}"   # (the first)
  --nnodes ${{#NODES[@]}} --name "$(echo x)"
  --tp 8)
{SERVE} "${{ARGS[@]}}" --all "${{NODES[*]}}" --last ${{NODES[1]}}
"""
    config, notes = load(tmp_path, text)
    args = config["server"]["args"]
    assert (args["host"], args["nnodes"], args["name"], args["tp"]) == ("a", 2, "$(echo x)", 8)
    assert (args["all"], args["last"]) == ("a b", "b")
    assert any("$(echo x) is not run" in note for note in notes)


@pytest.mark.parametrize(
    ("before", "folder"),
    [
        ("cd /a && cd b", "/a/b"),
        ("(cd kernel && make)", None),
        ("pushd /a; pushd /b; popd", "/a"),
        ("cd /a; (cd b; true)", "/a"),
    ],
)
def test_the_folder_that_the_server_is_started_in(tmp_path, before, folder):
    config, _ = load(tmp_path, f"{before}\n{SERVE}")
    assert config["server"].get("cwd") == folder


def test_arguments_that_the_script_sets_itself(tmp_path):
    config, notes = load(tmp_path, f'set -- --tp 2 --name "two words"\nset -e\n{SERVE} "$@"')
    assert config["server"]["args"] == {"model-path": "m", "tp": 2, "name": "two words"}
    assert notes == []
