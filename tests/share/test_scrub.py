"""Secrets and names: what is replaced, what is not, and that an archive gives nobody away."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietgate.share import names, secrets
from quietgate.share.names import Found
from quietgate.share.scrub import Scrubber, find
from share import studies


def scrubbed(text: str, *, users: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> str:
    found = Found(users=set(users), hosts=set(hosts))
    found.look_for = lambda: (None, None, None)  # type: ignore[method-assign]
    found.read_text(text, "server.log")
    return Scrubber(names.number(found, ())).text(text)


REPLACED = [
    ("token hf_" + "a1B2" * 9 + " used", "token [secret] used"),
    ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [secret]"),
    ("https://me:pass123@example.org/x", "https://[secret]@example.org/x"),
    ("HF_TOKEN=abcdef123 python", "HF_TOKEN=[secret] python"),
    ("--api-key s3cr3t-value --port 1", "--api-key [secret] --port 1"),
    ("ServerArgs(api_key='s3cr3t-value', tp_size=8)", "ServerArgs(api_key='[secret]', tp_size=8)"),
    ('{"admin_api_key": "s3cr3t-value"}', '{"admin_api_key": "[secret]"}'),
    ("WANDB_API_KEY=0123456789abcdef; then 0123456789abcdef", "WANDB_API_KEY=[secret]; then [secret]"),
    ("/home/alice/env and /home/bob/x", "/home/user1/env and /home/user2/x"),
    ("file:///home/alice/x, /mnt/home/alice/y", "file:///home/user1/x, /mnt/home/user1/y"),
    ("/Users/alice/x by alice", "/home/user1/x by user1"),
    ("/root/.cache and '/root'", "/home/user1/.cache and '/home/user1'"),
    ("/data/alice/x owned by alice, /home/alice", "/data/user1/x owned by user1, /home/user1"),
    ("mail alice@example.org", "mail [email]"),
    ("gpu7:12:34 [0] NCCL INFO Up\nsent by gpu7", "host1:12:34 [0] NCCL INFO Up\nsent by host1"),
    ("eth0:10.1.2.3<0> then 10.1.2.3", "eth0:address1<0> then address1"),
    ("tcp://192.168.7.9:5000", "tcp://address1:5000"),
]  # fmt: skip
KEPT = [
    "#token: 27, token usage: 0.01, gen throughput (token/s): 12.50",
    "eos_token='<|end_of_text|>', max_total_tokens=16384",
    "num_draft_tokens=3 --tokenizer-path models/x",
    "api_key=None, hf_token=None",
    "listening on http://127.0.0.1:30000 and 0.0.0.0:30000",
    "cublas 12.8.4.1 cudnn 9.10.2.21",
    "the root cause, rooted, /rooted/x, a/root",
    "accept length 2.71 of speculative steps",
]


@pytest.mark.parametrize(("text", "expected"), REPLACED)
def test_replaced(text: str, expected: str) -> None:
    assert scrubbed(text) == expected


@pytest.mark.parametrize("text", KEPT)
def test_kept(text: str) -> None:
    assert scrubbed(text) == text


@pytest.mark.parametrize(("text", "expected"), REPLACED)
def test_replacing_twice_changes_nothing_more(text: str, expected: str) -> None:
    assert scrubbed(expected) == expected


def test_long_and_short_name_of_a_host_are_one() -> None:
    text = "gpu7.lab.example.edu is gpu7; login.lab.example.edu is another"
    assert scrubbed(text, hosts=("gpu7.lab.example.edu",)) == "host1 is host1; login.domain1 is another"


def test_generic_accounts_are_words() -> None:
    assert scrubbed("ubuntu 24.04 run by ubuntu", users=("ubuntu",)) == "ubuntu 24.04 run by ubuntu"


def test_names_of_the_study_stay() -> None:
    found = Found(users={"tuned", "alice"})
    replacements = names.number(found, {"tuned", "steps-2_nccl-tuned"})
    assert replacements.users == {"alice": "user1"}
    assert replacements.kept == ("tuned",)


@given(st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False) | st.integers()))
def test_numbers_are_never_touched(record: dict[str, float]) -> None:
    assert Scrubber(names.number(Found(users={"alice"}), ())).value(record) == record


def test_answers_of_the_model_keep_their_words() -> None:
    scrubber = Scrubber(names.number(Found(users={"alice"}), ()))
    line = {"text": "alice met a hf_" + "x9" * 12, "text_sha256": "0" * 64, "error": "alice was here"}
    after = scrubber.value(line)
    assert after["text"] == "alice met a [secret]"
    assert after["text_sha256"] != line["text_sha256"]
    assert after["error"] == "user1 was here"


@pytest.mark.parametrize(
    ("name", "secret"),
    [("HF_TOKEN", True), ("--api-key", True), ("ssl_keyfile_password", True), ("AWS_SECRET_ACCESS_KEY", True),
     ("eos_token", False), ("completion_tokens", False), ("tokenizer", False), ("key", False)],
)  # fmt: skip
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert secrets.is_secret_name(name) is secret


def test_traces_are_read_through_their_compression(tmp_path: Path) -> None:
    trace = tmp_path / "t.json.gz"
    trace.write_bytes(gzip.compress(b'{"file": "/home/alice/env/torch.py(12)", "dur": 3.25}'))
    replacements = find(tmp_path, ["t.json.gz"], ())
    data = Scrubber(replacements).file(trace, "t.json.gz")
    assert json.loads(gzip.decompress(data)) == {"file": "/home/user1/env/torch.py(12)", "dur": 3.25}


def test_archive_gives_nobody_away(shared: tuple[Path, list[str]]) -> None:
    private = (studies.USER, studies.HOST, studies.DOMAIN, studies.TOKEN, studies.API_KEY, "10.20.30.40")
    with zipfile.ZipFile(shared[0]) as archive:
        for entry in archive.infolist():
            data = archive.read(entry)
            text = (gzip.decompress(data) if entry.filename.endswith(".gz") else data).decode(
                errors="replace"
            )
            for word in private:
                assert word not in entry.filename
                assert word not in text, f"{word} in {entry.filename}"


def test_replacements_are_listed_without_what_had_been_there(shared: tuple[Path, list[str]]) -> None:
    with zipfile.ZipFile(shared[0]) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("replacements.csv").decode())))
    made = {(r["kind"], r["replacement"]) for r in rows}
    assert made >= {("home", "/home/user1"), ("user", "user1"), ("host", "host1"), ("secret", "[secret]")}
    assert all(int(r["places"]) >= int(r["files"]) >= 1 for r in rows)


def test_whoever_shares_sees_what_was_replaced(shared: tuple[Path, list[str]]) -> None:
    lines = "\n".join(shared[1])
    assert f"home: {studies.HOME} -> /home/user1" in lines
    assert f"user: {studies.USER} -> user1" in lines
    assert studies.HOST in lines
    assert studies.TOKEN not in lines
    assert studies.API_KEY not in lines
