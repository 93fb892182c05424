"""Hostile archives and folders: one line, and nothing outside."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quietgate.errors import BadInput
from quietgate.share import archive, contents, strict

STUDY = ("study.json", b"{}")
FORMS = (".zip", ".tar.xz")


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


def member(name: str, data: bytes = b"", form: int = tarfile.USTAR_FORMAT, **fields: Any) -> bytes:
    """One entry of a tar, whatever it says of itself."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(form) + data + bytes(-len(data) % 512)


def forged(name: bytes, data: bytes = b"x") -> bytes:
    """An entry whose name no library would write: the field's very bytes, with a checksum that fits."""
    block = bytearray(member("x", data)[:512])
    block[: len(name)] = name
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + bytes(-len(data) % 512)


def extended(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return member("././@PaxHeader", records, type=kind)


def record(key: str, value: str) -> bytes:
    """One line of an extended header: its length in all, the key, the value."""
    rest = f" {key}={value}\n".encode()
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


S = member(*STUDY)
END = bytes(1024)


def packed(path: Path, *parts: bytes, end: bytes = END, **options: Any) -> Path:
    path.write_bytes(lzma.compress(b"".join(parts) + end, **options))
    return path


def tarred(path: Path, *entries: tuple[str, bytes]) -> Path:
    """A .tar.xz with names of any length, as Python's own library writes it."""
    return packed(path, *(member(name, data, tarfile.PAX_FORMAT) for name, data in entries))


def made(form: str, path: Path, *entries: tuple[str, bytes]) -> Path:
    return (zipped if form == ".zip" else tarred)(path, *entries)


def everything_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


# What both forms can be made to hold.
ENTRIES: dict[str, tuple[list[tuple[str, bytes]], str]] = {
    "absolute": ([STUDY, ("/etc/evil.json", b"x")], "absolute path"),
    "drive": ([STUDY, ("C:/evil.json", b"x")], "absolute path"),
    "parent": ([STUDY, ("../evil.json", b"x")], "leads elsewhere"),
    "inner parent": ([STUDY, ("cells/../../evil.json", b"x")], "leads elsewhere"),
    "bomb": ([STUDY, ("big.json", b"0" * 20_000_000)], "grows more than"),
    "wrong type": ([STUDY, ("run.sh", b"rm -rf /")], "a type of file"),
    "no extension": ([STUDY, ("Makefile", b"x")], "a type of file"),
    "script in a name": ([STUDY, ("<script>x<.json", b"x")], "an odd name"),
    "escape sequence": ([STUDY, ("a\x1b[2Jb.json", b"x")], "an odd name"),
    "not ASCII": ([STUDY, ("\u202egnp.json", b"x")], "an odd name"),
    "hidden": ([STUDY, (".bashrc.json", b"x")], "an odd name"),
    "long name": ([STUDY, ("a" * 300 + ".json", b"x")], "an odd name"),
    "deep": ([STUDY, ("a/" * 20 + "b.json", b"x")], "an odd name"),
    "twice": ([STUDY, ("a.json", b"x"), ("a.json", b"y")], "there twice"),
    "twice but for case": ([STUDY, ("a.json", b"x"), ("A.json", b"y")], "there twice"),
    "file and folder": ([STUDY, ("a.json", b"x"), ("a.json/b.json", b"y")], "a file and"),
    "folder and file": ([STUDY, ("A.json/b.json", b"x"), ("a.json", b"y")], "a file and"),
    "two studies": ([("a/study.json", b"{}"), ("b/study.json", b"{}")], "2 studies"),
    "no study": ([("a.json", b"{}")], "no study.json"),
    "nothing": ([], "no study.json"),
}

Hostile = dict[str, tuple[Callable[[Path], Path], str]]

ZIPS: Hostile = {
    "backslash": (
        lambda p: renamed(zipped(p, STUDY, ("a!b.json", b"x")), b"a!b.json", b"a\\b.json"),
        "absolute path",
    ),
    "link": (
        lambda p: zipped(p, STUDY, (entry("cells", stat.S_IFLNK | 0o777), b"/etc")),
        "a link or a device",
    ),
    "device": (
        lambda p: zipped(p, STUDY, (entry("x.json", stat.S_IFCHR | 0o666), b"")),
        "a link or a device",
    ),
    "LZMA bomb": (
        lambda p: zipped(p, STUDY, ("big.json", b"0" * 20_000_000), method=zipfile.ZIP_LZMA),
        "grows more than",
    ),
}

GREEDY = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 * 2**20}]

TARS: Hostile = {
    "backslash": (lambda p: packed(p, S, forged(b"a\\b.json")), "absolute path"),
    "behind a NUL": (lambda p: packed(p, S, forged(b"a.json\0/../x")), "leads elsewhere"),
    "NUL": (lambda p: packed(p, S, forged(b"a.json\0.json")), "an odd name"),
    "NUL in a long name": (
        lambda p: packed(p, S, extended(record("path", "a\0b.json")), member("x.json", b"x")),
        "an odd name",
    ),
    "symbolic link": (
        lambda p: packed(p, S, member("cells", type=tarfile.SYMTYPE, linkname="/etc")),
        "a link or a device",
    ),
    "hard link": (
        lambda p: packed(p, S, member("x.json", type=tarfile.LNKTYPE, linkname="study.json")),
        "a link or a device",
    ),
    "device": (lambda p: packed(p, S, member("x.json", type=tarfile.CHRTYPE)), "a link or a device"),
    "disk": (lambda p: packed(p, S, member("x.json", type=tarfile.BLKTYPE)), "a link or a device"),
    "pipe": (lambda p: packed(p, S, member("x.json", type=tarfile.FIFOTYPE)), "a link or a device"),
    "sparse": (lambda p: packed(p, S, member("x.json", type=tarfile.GNUTYPE_SPARSE)), "a kind of tar entry"),
    "GNU long name": (
        lambda p: packed(p, S, member("a/" * 60 + "x.json", b"x", tarfile.GNU_FORMAT)),
        "a kind of tar entry",
    ),
    "unknown kind": (lambda p: packed(p, S, member("x.json", type=b"Z")), "a kind of tar entry"),
    "folder with bytes": (
        lambda p: packed(p, S, member("cells", b"x", type=tarfile.DIRTYPE)),
        "a folder with bytes",
    ),
    "file with a slash": (lambda p: packed(p, S, member("x.json/", b"x")), "leads elsewhere"),
    "global header": (
        lambda p: packed(p, extended(record("path", "study.json"), tarfile.XGLTYPE), S),
        "a kind of tar entry",
    ),
    "long name leads elsewhere": (
        lambda p: packed(p, S, extended(record("path", "../evil.json")), member("x.json", b"x")),
        "leads elsewhere",
    ),
    "size twice": (
        lambda p: packed(p, S, extended(record("size", "1")), member("x.json", b"x" * 600)),
        "'size' in a tar header",
    ),
    "name twice": (
        lambda p: packed(p, S, extended(record("path", "a.json") * 2), member("x.json", b"x")),
        "'path' in a tar header",
    ),
    "sparse by name": (
        lambda p: packed(p, S, extended(record("GNU.sparse.realsize", "9")), member("x.json", b"x")),
        "'GNU.sparse.realsize' in a tar header",
    ),
    "link by name": (
        lambda p: packed(p, S, extended(record("linkpath", "/etc")), member("x.json", b"x")),
        "'linkpath' in a tar header",
    ),
    "other letters": (
        lambda p: packed(p, S, extended(record("hdrcharset", "BINARY")), member("x.json", b"x")),
        "'hdrcharset' in a tar header",
    ),
    "header of headers": (
        lambda p: packed(p, S, extended(record("path", "a.json")) * 2, member("x.json", b"x")),
        "a kind of tar entry",
    ),
    "endless header": (
        lambda p: packed(p, S, member("h", b"0" * 20_000, type=tarfile.XHDTYPE)),
        "a tar header longer than any name",
    ),
    **{
        f"header {records!r}": (
            lambda p, records=records: packed(p, S, extended(records), member("x.json", b"x")),
            "a damaged extended header",
        )
        for records in (
            b"x",
            b"0 path=a\n",
            b"99 path=a\n",
            b"9 path=a.json\n",
            b"-9 path=a\n",
            b"3 \n",
            b"9" * 9,
        )
    },
    "bomb of zeros behind the end": (
        lambda p: packed(p, S, end=bytes(20_000_000)),
        "grows more than",
    ),
    "bomb of empty files": (
        lambda p: packed(p, S, *(member(f"{i}.json") for i in range(20_000))),
        "grows more than",
    ),
    "more memory than results need": (
        lambda p: packed(p, S, filters=GREEDY),
        "takes more than 128 MiB of memory to unpack",
    ),
    "not a tar": (lambda p: packed(p, b"something else" * 100), "no tar in it, or a damaged one"),
    "a zip in it": (
        lambda p: packed(p, zipped(p, STUDY, ("a.json", os.urandom(999))).read_bytes()),
        "no tar in it",
    ),
    "an old tar": (
        lambda p: packed(p, S.replace(b"ustar", bytes(5))),
        "no tar in it, or a damaged one",
    ),
    "a header that is damaged": (
        lambda p: packed(p, S, member("x.json", b"x").replace(b"x.json", b"y.json")),
        "no tar in it, or a damaged one",
    ),
    "negative size": (
        lambda p: packed(p, S, member("x.json", size=-1, form=tarfile.GNU_FORMAT)),
        "no tar in it, or a damaged one",
    ),
    "larger than any file": (
        lambda p: packed(p, S, member("x.json", size=3 * 2**30)),
        "larger than 2 GiB",
    ),
    "too large to be written with digits": (
        lambda p: packed(p, S, member("x.json", size=2**60, form=tarfile.GNU_FORMAT)),
        "larger than 2 GiB",
    ),
    "without an end": (lambda p: packed(p, S, end=b""), "the tar in it is cut short"),
    "a file cut short": (lambda p: packed(p, S, member("x.json", size=5000)), "the tar in it is cut short"),
    "an entry behind the end": (
        lambda p: packed(p, S, END, member("x.json", b"x")),
        "something follows the tar's end",
    ),
    "something behind it": (
        lambda p: appended(packed(p, S), b"x"),
        "something follows its end",
    ),
    "a second archive behind it": (
        lambda p: appended(packed(p, S), lzma.compress(member("x.json", b"x") + END)),
        "something follows its end",
    ),
}


def appended(path: Path, more: bytes) -> Path:
    path.write_bytes(path.read_bytes() + more)
    return path


HOSTILE: Hostile = {
    **{
        f"{name}{form}": (lambda p, form=form, entries=entries: made(form, p, *entries), words)
        for name, (entries, words) in ENTRIES.items()
        for form in FORMS
    },
    **{f"{name}.zip": case for name, case in ZIPS.items()},
    **{f"{name}.tar.xz": case for name, case in TARS.items()},
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_archive_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    make, words = HOSTILE[name]
    path = make(tmp_path / "bad")
    before = everything_below(tmp_path)
    with pytest.raises(BadInput) as caught, archive.opened(path, tmp_path / "scratch"):
        pass
    message = str(caught.value)
    assert words in message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert message.isprintable()
    assert everything_below(tmp_path) == before
    with pytest.raises(BadInput) as seen:
        archive.look(path)
    assert str(seen.value) == message, "seen without unpacking"


@pytest.mark.parametrize("form", FORMS)
def test_more_files_than_any_study_has(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_FILES", 10)
    path = made(form, tmp_path / "many", STUDY, *((f"{i}.json", b"") for i in range(20)))
    with pytest.raises(BadInput, match="more than 10 files"), archive.opened(path):
        pass


@pytest.mark.parametrize("form", FORMS)
def test_total_size_is_limited(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_TOTAL_BYTES", 3000)
    path = made(form, tmp_path / "big", STUDY, ("a.json", os.urandom(2000)), ("b.json", os.urandom(2000)))
    with pytest.raises(BadInput, match="unpacks to more than"), archive.opened(path):
        pass


def test_size_in_the_header_is_not_believed(tmp_path: Path) -> None:
    path = zipped(tmp_path / "liar.zip", STUDY, ("a.json", b"0" * 5000))
    data = path.read_bytes().replace(struct.pack("<I", 5000), struct.pack("<I", 5))
    path.write_bytes(data)
    with pytest.raises(BadInput), archive.opened(path):
        pass


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [10, 200, 400])
def test_cut_archive(cut: int, form: str, tmp_path: Path) -> None:
    path = made(form, tmp_path / "cut", STUDY, ("a.json", os.urandom(1000)))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(BadInput, match=r"not a whole (zip|\.tar\.xz) file"), archive.opened(path):
        pass


@pytest.mark.parametrize("form", FORMS)
def test_every_damaged_byte_is_refused_or_changes_nothing(form: str, tmp_path: Path) -> None:
    path = made(form, tmp_path / "x", STUDY, ("a.json", bytes(range(256))))
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        with contextlib.suppress(BadInput), archive.opened(path) as root:
            assert (root / "a.json").read_bytes() == bytes(range(256))


def test_an_archive_that_is_another_one_when_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tarred(tmp_path / "x", STUDY, ("a.json", b"1"))
    listed = archive._listed(path)
    tarred(path, STUDY, ("b.json", b"1"))
    monkeypatch.setattr(archive, "_listed", lambda path: listed)
    with pytest.raises(BadInput, match="changed while it was read"), archive.opened(path):
        pass
    for entries in ([STUDY], [STUDY, ("a.json", b"1"), ("b.json", b"1")]):
        tarred(path, *entries)
        with pytest.raises(BadInput, match="changed while it was read"), archive.opened(path):
            pass


NEITHER = r"name a results folder, or a \.zip or \.tar\.xz of one"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, f"No such file.*{NEITHER}"),
        (lambda p: p.write_bytes(b""), f"neither a zip nor a \\.tar\\.xz.*{NEITHER}"),
        (lambda p: p.write_bytes(b"hello"), f"neither a zip nor a \\.tar\\.xz.*{NEITHER}"),
        (lambda p: p.write_bytes(S + END), f"neither a zip nor a \\.tar\\.xz.*{NEITHER}"),
        (lambda p: p.write_bytes(gzip.compress(S + END)), f"neither a zip nor a \\.tar\\.xz.*{NEITHER}"),
        (lambda p: p.write_bytes(b"PK no zip"), "not a whole zip file"),
        (lambda p: p.write_bytes(b"\xfd7zXZ\0 no xz"), r"not a whole \.tar\.xz file"),
        (lambda p: p.mkdir(), "no study.json"),
        (os.mkfifo, f"neither a folder nor a file.*{NEITHER}"),
    ],
    ids=["nothing", "empty", "text", "tar", "tar.gz", "no zip", "no xz", "empty folder", "pipe"],
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


@pytest.mark.parametrize("form", FORMS)
def test_folder_inside_the_archive_is_found(form: str, tmp_path: Path) -> None:
    # Told by its bytes: no name, and a wrong one, will do.
    path = made(
        form, tmp_path / "ok.zip", ("my-study/study.json", b"{}"), ("my-study/cells/a/l1/x.json", b"1")
    )
    with archive.opened(path) as root:
        assert sorted(archive.files(root)) == ["cells/a/l1/x.json", "study.json"]
        assert (root / "cells/a/l1/x.json").read_bytes() == b"1"
        archive.look(root.parent)
    archive.look(path)
    assert not root.exists()


def test_what_tars_of_other_programs_hold(tmp_path: Path) -> None:
    """Folders, times in extended headers, long names in either place, GNU's magic, padding, a large file."""
    large, longest = os.urandom(3_000_000), "/".join(["d" * 60] * 5) + "/x.json"
    path = packed(
        tmp_path / "x",
        member("s/", type=tarfile.DIRTYPE),
        extended(record("mtime", "1700000000.25") + record("uname", "me")) + member("s/study.json", b"{}"),
        member("s/" + "p" * 90 + "/" + "n" * 90 + ".json", b"1"),
        member("s/" + longest, b"2", tarfile.PAX_FORMAT),
        member("s/gnu.json", b"3", tarfile.GNU_FORMAT),
        member("s/large.gz", large),
        member("s/empty.log", type=tarfile.AREGTYPE),
        end=bytes(20 * 512),
    )
    with archive.opened(path) as root:
        held = {name: (root / name).read_bytes() for name in archive.files(root)}
    assert held == {
        "study.json": b"{}", "p" * 90 + "/" + "n" * 90 + ".json": b"1", longest: b"2", "gnu.json": b"3",
        "large.gz": large, "empty.log": b"",
    }  # fmt: skip


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
