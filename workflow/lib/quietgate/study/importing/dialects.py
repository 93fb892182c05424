"""Launches in the languages beside the shell's, rewritten as a shell script line by line.

PowerShell and cmd.exe, a unit of systemd or supervisor, a Makefile, a justfile, a Dockerfile. A line stays in
its place, so that notes name the right one; what is not understood stays as it is.
"""

from __future__ import annotations

import json
import re
import shlex

_POWERSHELL = re.compile(r"^[ \t]*\$env:\w+\s*=|[ \t]`[ \t]*$", re.M)
_CMD = re.compile(r"^[ \t]*@?set\s+\"?\w+=|[ \t]\^[ \t]*$", re.M | re.I)
_UNIT = re.compile(r"^ExecStart\s*=", re.M)
_PROGRAM = re.compile(r"^\[program:.*\]", re.M)
_STARTED = re.compile(r"(?:ExecStart|command)\s*=")
_MAKE = re.compile(r"^[\w./-]+[ \t]*:(?!=)[^\n]*\n\t", re.M)
_JUST = re.compile(r"^\w+\s*:=.*$(?s:.*)\{\{", re.M)
_DOCKER = re.compile(r"\A(?:[ \t]*(?:#[^\n]*|ARG [^\n]*|)\n)*[ \t]*FROM\s+(\S+)", re.I)
# A value that is written out: quoted, or one word that is no expression.
_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s\"'(){}]+)"


def as_shell(text: str) -> tuple[str, list[str]]:
    """The text as a shell script, and notes; a shell script comes back as it is."""
    original = text
    if found := _DOCKER.match(text):
        return _of_dockerfile(text), [
            f"the server ran in an image made from {found[1]}: run the workflow inside it too, or name an "
            "interpreter with the same SGLang in server.python (paths are the image's)"
        ]
    for language, rewrite in (
        (_POWERSHELL, _of_powershell),
        (_CMD, _of_cmd),
        (_UNIT, _of_unit),
        (_PROGRAM, _of_program),
        (_MAKE, _of_makefile),
        (_JUST, _of_justfile),
    ):
        if language.search(text):
            text = "\n".join(map(rewrite, text.split("\n")))
    if _UNIT.search(original) or _PROGRAM.search(original):
        started = [i for i, line in enumerate(original.split("\n")) if _STARTED.match(line)]
        text = _settled_first(text, started[0]) if started else text
    return text, []


def _settled_first(text: str, command: int) -> str:
    """A unit with the settings behind its command before it: there the order means nothing."""
    lines = text.split("\n")
    late = [i for i in range(command, len(lines)) if lines[i].startswith(("export ", "cd ", "source "))]
    lines[command] = "; ".join([*(lines[i] for i in late), lines[command]])
    return "\n".join("" if i in late else line for i, line in enumerate(lines))


def _of_powershell(line: str) -> str:
    line = re.sub(r"[ \t]`[ \t]*$", r" \\", _kept_backslashes(line))
    line = re.sub(rf"^\s*\$env:(\w+)\s*=\s*{_VALUE}\s*(?=$|;)", r"export \1=\2", line)
    line = re.sub(r";\s*\$env:(\w+)\s*=\s*", r"; export \1=", line)
    line = re.sub(r"\$(?:env:(\w+)|\{env:(\w+)\})", r"${\1\2}", line)
    return re.sub(rf"^\s*(?:\[\w+\])?\$(\w+)\s*=\s*{_VALUE}\s*,?\s*$", r"\1=\2", line)


def _of_cmd(line: str) -> str:
    line = re.sub(r"[ \t]\^[ \t]*$", r" \\", _kept_backslashes(line))
    line = re.sub(r"(?i)^(\s*)@?set\s+\"?(\w+)=([^\"&]*?)\"?\s*(?=$|&)", r"\1export \2='\3' ", line)
    line = re.sub(r"(?i)(&\s*)set\s+\"?(\w+)=([^\"&]*?)\"?\s*(?=$|&)", r"\1export \2='\3' ", line)
    return re.sub(r"%(\w+)%", r"${\1}", line)


def _kept_backslashes(line: str) -> str:
    """Of a Windows path: a shell would take the next character for it."""
    return re.sub(r"\\(?=\S)", r"\\\\", line)


def _of_unit(line: str) -> str:
    for name, command in (
        (r"ExecStart\s*=\s*[-@:+!]*", ""),
        (r"Environment\s*=\s*", "export "),
        (r"EnvironmentFile\s*=\s*-?", "source "),
        (r"WorkingDirectory\s*=\s*-?", "cd "),
    ):
        line = re.sub(rf"^{name}", command, line)
    return line


def _of_program(line: str) -> str:
    line = re.sub(r"^command\s*=\s*", "", line)
    line = re.sub(r"^directory\s*=\s*", "cd ", line)
    if found := re.match(r"environment\s*=\s*(.*)$", line):
        pairs = re.findall(r"\w+=(?:\"[^\"]*\"|'[^']*'|[^,\s]*)", found[1])
        return "export " + " ".join(pairs)
    return line


def _of_makefile(line: str) -> str:
    line = re.sub(r"\$\((\w+)\)", r"${\1}", line)
    if not line.startswith("\t"):
        return re.sub(r"^(export\s+)?(\w+)\s*(?:::|:|\?|)=\s*(.*?)\s*$", r'\1\2="\3"', line)
    return re.sub(r"^\t-?@+-?", "\t", line).replace("$$", "$")


def _of_justfile(line: str) -> str:
    line = re.sub(r"\{\{\s*(\w+)\s*\}\}", r"${\1}", line)
    if not line.startswith((" ", "\t")):
        line = re.sub(rf"^(?:export\s+)?(\w+)\s*:=\s*{_VALUE}\s*$", r"\1=\2", line)
        # The parameters of a recipe that have a default.
        return re.sub(rf"^@?[\w-]+((?:\s+\w+={_VALUE})+)\s*:.*$", r"\1", line)
    return re.sub(r"^\s+-?@+-?", "", line)


def _of_dockerfile(text: str) -> str:
    lines: list[str] = []
    started = {"ENTRYPOINT": "", "CMD": ""}
    at = 0
    for found in re.finditer(r"^(?:.*\\[ \t]*\n)*.*$", text, re.M):
        whole = re.sub(r"\\[ \t]*\n", " ", found[0])
        name, _, rest = whole.strip().partition(" ")
        name, rest = name.upper(), rest.strip()
        if name in started:
            started[name], at = rest, len(lines)
            if name == "ENTRYPOINT":
                started["CMD"] = ""
        pair = re.fullmatch(r"(\w+)\s+(.*)", rest) if name == "ENV" else None
        given = f'{pair[1]}="{pair[2]}"' if pair else rest
        commands = {"ENV": f"export {given}", "ARG": given if "=" in given else "", "WORKDIR": f"cd {rest}"}
        lines += [commands.get(name, ""), *[""] * found[0].count("\n")]
    words, arguments = (_docker_words(started[name]) for name in ("ENTRYPOINT", "CMD"))
    # The shell form of ENTRYPOINT takes no arguments from CMD.
    takes = not started["ENTRYPOINT"] or started["ENTRYPOINT"].startswith("[")
    lines[at] = f"{words} {arguments}" if takes else words
    return "\n".join(lines)


def _docker_words(form: str) -> str:
    try:
        return shlex.join(json.loads(form))
    except (ValueError, TypeError):
        return form
