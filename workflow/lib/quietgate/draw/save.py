"""Figures to files: the same bytes from the same tables, whenever and wherever they are drawn."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from quietgate.draw.captions import heading
from quietgate.draw.drawn import Drawn
from quietgate.files import sha256, write_atomic

# Dates and program versions would differ between two drawings of one figure.
_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
EXTENSIONS = ("pdf", "svg", "png", "csv", "txt")


def _few_colours(png: io.BytesIO) -> bytes:
    """A drawing with at most 256 colours, all that it needs: a third of the size in every archive."""
    small = io.BytesIO()
    with Image.open(png) as picture:
        few = picture.convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(small, "png", optimize=True, dpi=picture.info["dpi"])
    return small.getvalue()


def save(drawn: Drawn, out_dir: Path) -> dict[str, str]:
    """Write <name>.pdf, .svg, .png, .csv (the frame drawn) and .txt (the caption); SHA-256 of each."""
    # The layout is solved once, so that every format shows the same picture.
    drawn.figure.draw_without_rendering()
    drawn.figure.set_layout_engine("none")
    for extension, metadata in _METADATA.items():
        buffer = io.BytesIO()
        drawn.figure.savefig(buffer, format=extension, metadata=metadata)
        made = _few_colours(buffer) if extension == "png" else buffer.getvalue()
        write_atomic(out_dir / f"{drawn.name}.{extension}", made)
    write_atomic(out_dir / f"{drawn.name}.csv", drawn.frame.to_csv(index=False, lineterminator="\n"))
    write_atomic(out_dir / f"{drawn.name}.txt", f"{heading(drawn.title)} {drawn.caption}\n")
    return {e: sha256(out_dir / f"{drawn.name}.{e}") for e in EXTENSIONS}
