"""GPU slots: what one server needs for itself, and the machine-wide locks that guard it.

A slot is a set of GPUs (or the CPU). Its locks are files in one folder per machine, named after
GPU UUIDs, so that two studies, also of two users, never measure on the same GPU at once.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietgate import gpus
from quietgate.errors import BadInput
from quietgate.gpus import Gpu
from quietgate.serve.locks import Lock, try_lock
from quietgate.wording import counted

FOLDER_VARIABLE = "QUIETGATE_SLOT_DIR"
DEFAULT_FOLDER = "/tmp/quietgate-slots"
WAITING = "waiting"


@dataclass(frozen=True)
class Slot:
    """What one server occupies.

    Attributes:
        name: short and fit for a path, e.g. `gpu-0-1`.
        locks: keys of the locks it takes: GPU UUIDs, or a name beginning with `cpu`.
        env: variables that confine a server to it.
    """

    name: str
    locks: tuple[str, ...]
    env: dict[str, str]

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The slot's GPUs, for questions to the driver."""
        return tuple(key for key in self.locks if not key.startswith("cpu"))

    def as_json(self) -> dict[str, Any]:
        """The slot as a JSON object."""
        return {"name": self.name, "locks": list(self.locks), "env": self.env}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Slot:
        """The inverse of `as_json`."""
        return Slot(value["name"], tuple(value["locks"]), dict(value["env"]))


def folder() -> Path:
    """The machine's folder of slot locks, made where missing; BadInput when it cannot be used."""
    path = Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).absolute()
    for part in (path, path / WAITING):
        try:
            part.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise BadInput(
                f"{part}: cannot make the folder of GPU slot locks ({e.strerror}); "
                f"name another one in {FOLDER_VARIABLE}"
            ) from None
        with contextlib.suppress(OSError):  # another user's folder: its mode is theirs
            if part.stat().st_mode & 0o7777 != 0o1777:
                part.chmod(0o1777)
        if not os.access(part, os.W_OK | os.X_OK):
            raise BadInput(
                f"{part}: the folder of GPU slot locks is not writable; have its owner run "
                f"`chmod 1777 {part}`, or name another one in {FOLDER_VARIABLE}"
            )
    return path


def _visible(machine: tuple[Gpu, ...]) -> list[tuple[str, str]]:
    """(token for CUDA_VISIBLE_DEVICES, lock key) of each GPU that CUDA programs see here.

    BadInput where a GPU that is lost may have numbers mean other GPUs to CUDA than to the driver.
    """
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    counted = variable is None or any(t.strip().isdigit() for t in variable.split(","))
    if counted and (lost := set(range(machine[-1].index if machine else 0)) - {g.index for g in machine}):
        raise BadInput(
            f"GPU {min(lost)} of this machine does not answer its driver (see `nvidia-smi`), and CUDA may "
            "count the others without it: reset it, or name the others in CUDA_VISIBLE_DEVICES by UUID"
        )
    if variable is None:
        return [(str(gpu.index), gpu.uuid) for gpu in machine]
    by_index = {str(gpu.index): gpu.uuid for gpu in machine}
    found = []
    for token in (t.strip() for t in variable.split(",")):
        if token.startswith("MIG-"):
            key: str | None = token
        elif token.startswith("GPU-"):  # an abbreviated UUID is allowed there
            full = [gpu.uuid for gpu in machine if gpu.uuid.startswith(token)]
            key = full[0] if len(full) == 1 else None
        else:
            key = by_index.get(token)
        if key is None:  # as CUDA does: the first unknown token hides itself and all after it
            break
        found.append((token, key))
    return found


def discover(config_slots: Any = "auto") -> tuple[Slot, ...]:
    """The slots a study may use.

    Args:
        config_slots: `auto` for one slot of all visible GPUs (the CPU where there is none), or a
            list of lists of GPU numbers as CUDA counts them here; an empty list is a CPU slot.

    BadInput where such a number names no GPU here, or none for sure.
    """
    if config_slots is None or config_slots == "auto":
        seen = _visible(gpus.all_gpus())
        if not seen:
            return (Slot("cpu", ("cpu",), {}),)
        # Nothing is set that was not set: the study's own command stays literally the same.
        tokens = ",".join(token for token, _ in seen)
        env = {"CUDA_VISIBLE_DEVICES": tokens} if "CUDA_VISIBLE_DEVICES" in os.environ else {}
        name = "gpu-" + "-".join(str(i) for i in range(len(seen)))
        return (Slot(name, tuple(sorted(key for _, key in seen)), env),)
    if (
        not isinstance(config_slots, list | tuple)
        or not config_slots
        or not all(isinstance(one, list | tuple) for one in config_slots)
    ):
        raise BadInput(
            f"slots: {config_slots!r} is neither `auto` nor a list of lists of GPU numbers, "
            "such as [[0, 1], [2, 3]]"
        )
    seen = _visible(gpus.all_gpus()) if any(config_slots) else []
    return tuple(_listed(number, one, seen) for number, one in enumerate(config_slots))


def _listed(number: int, wanted: Any, seen: list[tuple[str, str]]) -> Slot:
    if not wanted:
        return Slot(f"cpu-{number}", (f"cpu-{number}",), {})
    for gpu in wanted:
        if isinstance(gpu, bool) or not isinstance(gpu, int) or not 0 <= gpu < len(seen):
            raise BadInput(
                f"slots[{number}]: no GPU {gpu!r} here; this machine shows {counted(len(seen), 'GPU')}"
                + (f", numbered 0 to {len(seen) - 1}" if seen else "")
            )
    if len(set(wanted)) != len(wanted):
        raise BadInput(f"slots[{number}]: a GPU is named twice in {list(wanted)}")
    return Slot(
        "gpu-" + "-".join(str(gpu) for gpu in wanted),
        tuple(sorted(seen[gpu][1] for gpu in wanted)),
        {
            # By number, not UUID: SGLang reads this variable as numbers in places. The order
            # makes CUDA's numbers those of the driver, by which the locks were chosen.
            "CUDA_VISIBLE_DEVICES": ",".join(seen[gpu][0] for gpu in wanted),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        },
    )


def lock_path(where: Path, key: str) -> Path:
    """The lock file of a GPU UUID or CPU slot."""
    return where / f"{key.replace('/', '_')}.lock"


def try_slot(where: Path, slot: Slot) -> list[Lock] | None:
    """All locks of a slot, or none of them: never some while waiting for others (no deadlock)."""
    held: list[Lock] = []
    for key in sorted(slot.locks):
        lock = try_lock(lock_path(where, key))
        if lock is None:
            for other in held:
                other.release()
            return None
        held.append(lock)
    return held
