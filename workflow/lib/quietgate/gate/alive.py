"""Stage 1: the processes that were launched are alive."""

from __future__ import annotations

from quietgate.gate.stage import Proof, StageFailed, Subject
from quietgate.serve import processes


def prove(subject: Subject) -> Proof:
    """Every launched process runs; one that is gone is classified by its log and exit status.

    The watch goes on in every later wait (`Subject.poll`): a server that dies while another stage is
    being proved fails this one, at once.
    """
    subject.poll()
    found = []
    for root in subject.roots:
        state = processes.stat(root.pid)
        if state is None or state.state in "ZX":
            subject.died([root.pid])
            raise AssertionError("died() raises")
        found.append({"pid": root.pid, "group": state.group, "session": state.session})
    if not found:
        raise StageFailed("killed", "no process of this launch is alive")
    return Proof({"processes": found})
