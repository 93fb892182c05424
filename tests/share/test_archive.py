"""Hostile archives and folders: one line, and nothing outside."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from quietgate.errors import BadInput
from quietgate.share import archive, strict

STUDY = ("study.json", b"{}")


def zipped(
    path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as out:
        for name, data in entries:
            out.writestr(name, data)
    return path


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.create_system = 3
    made.external_attr = mode << 16
    return made


def renamed(path: Path, old: bytes, new: bytes) -> Path:
    """The zip with a name of the same length in place of another, as no library would write it."""
    path.write_bytes(path.read_bytes().replace(old, new))
    return path


def everything_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "absolute": (lambda p: zipped(p, STUDY, ("/etc/evil.json", b"x")), "absolute path"),
    "drive": (lambda p: zipped(p, STUDY, ("C:/evil.json", b"x")), "absolute path"),
    "backslash": (
        lambda p: renamed(zipped(p, STUDY, ("a!b.json", b"x")), b"a!b.json", b"a\\b.json"),
        "absolute path",
    ),
    "parent": (lambda p: zipped(p, STUDY, ("../evil.json", b"x")), "leads elsewhere"),
    "inner parent": (lambda p: zipped(p, STUDY, ("cells/../../evil.json", b"x")), "leads elsewhere"),
    "link": (
        lambda p: zipped(p, STUDY, (entry("cells", stat.S_IFLNK | 0o777), b"/etc")),
        "a link or a device",
    ),
    "device": (
        lambda p: zipped(p, STUDY, (entry("x.json", stat.S_IFCHR | 0o666), b"")),
        "a link or a device",
    ),
    "bomb": (lambda p: zipped(p, STUDY, ("big.json", b"0" * 20_000_000)), "grows more than"),
    "tight bomb": (
        lambda p: zipped(p, STUDY, ("big.json", b"0" * 20_000_000), method=zipfile.ZIP_LZMA),
        "grows more than",
    ),
    "wrong type": (lambda p: zipped(p, STUDY, ("run.sh", b"rm -rf /")), "a type of file"),
    "no extension": (lambda p: zipped(p, STUDY, ("Makefile", b"x")), "a type of file"),
    "script in a name": (lambda p: zipped(p, STUDY, ("<script>x<.json", b"x")), "an odd name"),
    "escape sequence": (lambda p: zipped(p, STUDY, ("a\x1b[2Jb.json", b"x")), "an odd name"),
    "hidden": (lambda p: zipped(p, STUDY, (".bashrc.json", b"x")), "an odd name"),
    "long name": (lambda p: zipped(p, STUDY, ("a" * 300 + ".json", b"x")), "an odd name"),
    "deep": (lambda p: zipped(p, STUDY, ("a/" * 20 + "b.json", b"x")), "an odd name"),
    "twice": (lambda p: zipped(p, STUDY, ("a.json", b"x"), ("A.json", b"y")), "there twice"),
    "file and folder": (lambda p: zipped(p, STUDY, ("a.json", b"x"), ("a.json/b.json", b"y")), "a file and"),
    "two studies": (lambda p: zipped(p, ("a/study.json", b"{}"), ("b/study.json", b"{}")), "2 studies"),
    "no study": (lambda p: zipped(p, ("a.json", b"{}")), "no study.json"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_archive_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    make, words = HOSTILE[name]
    path = make(tmp_path / "bad.zip")
    before = everything_below(tmp_path)
    with pytest.raises(BadInput) as caught, archive.opened(path):
        pass
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert message.isprintable()
    assert everything_below(tmp_path) == before
    with pytest.raises(BadInput) as seen:
        archive.look(path)
    assert str(seen.value) == message, "seen without unpacking"


def test_more_files_than_any_study_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 10)
    path = zipped(tmp_path / "many.zip", STUDY, *((f"{i}.json", b"") for i in range(20)))
    with pytest.raises(BadInput, match="more than 10 files"), archive.opened(path):
        pass


def test_total_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 1000)
    path = zipped(tmp_path / "big.zip", STUDY, ("a.json", os.urandom(2000)))
    with pytest.raises(BadInput, match="unpacks to more than"), archive.opened(path):
        pass


def test_size_in_the_header_is_not_believed(tmp_path: Path) -> None:
    path = zipped(tmp_path / "liar.zip", STUDY, ("a.json", b"0" * 5000))
    data = path.read_bytes().replace(struct.pack("<I", 5000), struct.pack("<I", 5))
    path.write_bytes(data)
    with pytest.raises(BadInput), archive.opened(path):
        pass


@pytest.mark.parametrize("cut", [10, 200, 400])
def test_cut_archive(cut: int, tmp_path: Path) -> None:
    path = zipped(tmp_path / "cut.zip", STUDY, ("a.json", os.urandom(1000)))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(BadInput, match="not a whole zip file"), archive.opened(path):
        pass


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "name a results folder or a zip"),
        (lambda p: p.write_bytes(b"\x1f\x8b no zip"), "not a whole zip file"),
        (lambda p: p.mkdir(), "no study.json"),
        (os.mkfifo, "neither a folder nor a zip file"),
    ],
)
def test_not_results_at_all(make: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(BadInput, match=words), archive.opened(tmp_path / "x"):
        pass
    with pytest.raises(BadInput, match=words):
        archive.look(tmp_path / "x")


def test_folder_with_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    (tmp_path / "cells").symlink_to("/etc")
    with pytest.raises(BadInput, match="cells: a link"), archive.opened(tmp_path):
        pass


@pytest.mark.parametrize(
    ("root", "text", "said"),
    [
        ("/tmp/a", "/tmp/a/study.json: no", "study.json: no"),
        ("/tmp/a", "x (/tmp/a/study.json)", "x (study.json)"),
        ("/tmp/a", "'/tmp/a/t.gz' of /home/tmp/a/t.gz", "'t.gz' of /home/tmp/a/t.gz"),
        (".", "no model ../m/o/d", "no model ../m/o/d"),
        ("a", "a/study.json: data/x", "study.json: data/x"),
    ],
)
def test_files_of_the_results_are_named_below_them_and_no_other_path_is_cut(
    root: str, text: str, said: str
) -> None:
    assert archive.below(Path(root), text) == said


def test_folder_inside_the_archive_is_found(tmp_path: Path) -> None:
    path = zipped(tmp_path / "ok.zip", ("my-study/study.json", b"{}"), ("my-study/cells/a/l1/x.json", b"1"))
    with archive.opened(path) as root:
        assert sorted(archive.files(root)) == ["cells/a/l1/x.json", "study.json"]
        archive.look(root.parent)
    archive.look(path)
    assert not root.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not readable as JSON"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": 1e999}', "holds the number inf"),
        ('{"a": 1e300}', "larger than anything measured"),
        ('{"a": ' + "9" * 30 + "}", "larger than anything measured"),
        ('{"a": ' + "9" * 9000 + "}", "not readable as JSON"),
        ("[" * 100 + "]" * 100, "nested"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a": "\\ud800"}', "not text"),
    ],
)
def test_json_that_no_record_is(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadInput, match=words) as caught:
        strict.load(tmp_path / "x.json")
    assert "\n" not in str(caught.value)
