"""Stage 9: warm-up at each of the benchmark's own concurrencies until two passes agree."""

from __future__ import annotations

import time

from quietgate.gate.stage import Evidence, Proof, StageFailed, Subject
from quietgate.measure import warm_up

_KEEP = ("concurrency", "steady", "why", "tokens_per_s", "cycle_ms", "seconds")


def prove(subject: Subject) -> Proof:
    """Repeat passes over the prompts until they are steady; unsteadiness is a remark, no failure.

    How steady a machine is belongs to the result (its intervals show it); a failed request does not.
    """
    plan = subject.plan
    end = time.monotonic() + plan.warm_up_s
    found: list[Evidence] = []
    for concurrency in plan.concurrency:
        left = max(1.0, end - time.monotonic())
        result = warm_up.until_steady(
            subject.live.base_url,
            list(plan.prompts),
            plan.sampling,
            concurrency,
            max_passes=plan.warm_up_passes,
            tolerance=plan.warm_up_tolerance,
            max_s=left,
            timeout_s=plan.request_timeout_s,
            stall_s=plan.request_stall_s,
            check=subject.poll,
        )
        failed = [p for p in result["passes"] if p["status"] != "passed"]
        found.append({name: result[name] for name in _KEEP} | {"passes": len(result["passes"])})
        if failed:
            subject.linger()
            raise StageFailed(
                "warm_up",
                f"a warm-up pass at concurrency {concurrency} failed: {failed[0]['problems'][0]}",
                [str(p) for p in failed[0]["problems"]],
                {"concurrencies": found},
            )
    unsteady = [f"concurrency {f['concurrency']}: {f['why']}" for f in found if not f["steady"]]
    return Proof({"concurrencies": found}, "; ".join(unsteady) or None)
