"""What keeps a study from running on this machine: looked for before any server, and before a record moves.

The config's own rules are checked when it is read (`study.config`). What stands here depends on the machine:
a run refuses it; `plan` warns of it, since a plan may be made elsewhere.
"""

from __future__ import annotations

from quietgate.gate import all_reduce
from quietgate.measure import workload
from quietgate.study import Study, here


def problems(study: Study) -> list[str]:
    """One line for each: source, key, what is wrong, what to do."""
    return [*here.missing(study), *workload.problems(study), *all_reduce.problems(study)]
