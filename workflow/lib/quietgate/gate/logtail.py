"""What a log has gained since the last look."""

from __future__ import annotations

from pathlib import Path


class LogTail:
    """Reads a growing file piece by piece; a line cut by the last look is seen whole.

    Args:
        start: byte to begin at; the log from before is not seen.
    """

    def __init__(self, path: Path, start: int = 0):
        self._path = path
        self._offset = start
        self._rest = ""

    def new_text(self) -> str:
        """The text since the last call, preceded by the unfinished line of that call."""
        try:
            with self._path.open("rb") as f:
                f.seek(self._offset)
                raw = f.read()
                self._offset = f.tell()
        except OSError:
            return ""
        if not raw:
            return ""
        text = self._rest + raw.decode(errors="replace")
        self._rest = text.rpartition("\n")[2]
        return text

    def new_lines(self) -> list[str]:
        """The lines that were finished since the last call."""
        return self.new_text().splitlines(keepends=False)[: None if not self._rest else -1]
