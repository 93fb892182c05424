import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod, ExecMode

from quietgate import packages


def refuse(error):
    """Bad input ends here: its lines, no traceback, exit status 2."""
    print(error, file=sys.stderr, flush=True)
    sys.exit(2)


# With conda the jobs have an environment of their own.
if DeploymentMethod.CONDA not in workflow.deployment_settings.deployment_method:
    if lacking := packages.lacking():
        refuse("\n".join(lacking))

from quietgate.errors import BadInput
from quietgate.files import sha256
from quietgate.serve import lease
from quietgate.gate import beforehand
from quietgate.study import Study, command, earlier, left_out, resume, stages, targets
from quietgate.study.config import load

REVIEWER = "results" in config
if REVIEWER and "grid" in config:
    refuse(
        "config: results names what a reviewer was given; a study's own go to results/<study>: take it out"
    )
ENV = "../../envs/workflow.yaml"


# What can be asked of Snakemake besides running jobs; every one of them parses the Snakefile too.
ONLY_LOOKS = (
    "dryrun touch lint list_rules list_target_rules print_compilation dag rulegraph filegraph d3dag unlock"
    " cleanup_metadata conda_cleanup_envs conda_create_envs_only list_conda_envs cleanup_shadow"
    " container_cleanup_images list_changes list_input_changes list_params_changes list_untracked summary"
    " detailed_summary archive delete_all_output delete_temp_output containerize generate_unit_tests"
).split()


def asked():
    """The command line as Snakemake has parsed it, or None when it was not called by one. It is not told to
    a Snakefile, so this looks at the call that leads here."""
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "args_to_api":
        frame = frame.f_back
    return frame.f_locals["args"] if frame else None


def makes_report():
    """Whether this call makes Snakemake's own report of what is there, and runs nothing."""
    args = asked()
    return args is not None and args.reporter is not None and not args.report_after_run


def real_run():
    """Whether jobs of this process will run: dry runs, --lint, --report and the like must change nothing."""
    if workflow.exec_mode != ExecMode.DEFAULT:
        return False
    args = asked()
    if args is None:
        return True
    return not makes_report() and not any(getattr(args, name) for name in ONLY_LOOKS)


def tell(line):
    """One line for whoever watches."""
    print(line, file=sys.stderr, flush=True)


def verbatim(text):
    """Text as a rule's parameter, whatever stands in it: Snakemake would read braces as wildcards."""
    return lambda wildcards: text


def load_study():
    source = ", ".join(os.path.relpath(f) for f in workflow.configfiles) or "--config"
    try:
        for path in workflow.configfiles:
            load(
                Path(path)
            )  # Snakemake takes the last of two equal keys; this refuses them.
        study = Study.from_config(dict(config), source)
        study.digests(study.reference)
        results = Path("results", study.name)
        study.history = earlier.history_of(results)
        # What was finished without some launches is shown without them too.
        if study.only_measured or (only_redraws() and earlier.was_left_out(results)):
            left_out.leave_out(study, results)
            if study.left_out:
                tell(left_out.sentence(study))
        return study
    except BadInput as error:
        refuse(error)


def only_redraws():
    """Whether nothing but `share` or `figures` is asked for: these show what was measured, failures too."""
    args = asked()
    targets = set(args.targets or ()) if args else set()
    return bool(targets) and targets <= {"share", "figures"}


def look_beforehand(study):
    """What keeps the study's servers from being started here ends the run, before anything is moved."""
    problems = beforehand.problems(study)
    if problems:
        refuse("\n".join(problems))


def forces_stages():
    """Whether --forcerun names a stage that needs a server, or a record of one."""
    forced = getattr(asked(), "forcerun", None) or ()
    served = [stage for stage in stages.chain(STUDY) if stage.needs_server]
    names = {stage.name for stage in served}
    records = {stage.record for stage in served}
    return any(
        f in names or (f"{RESULTS}/cells/" in f and Path(f).name in records)
        for f in forced
    )


def changed_since(redo):
    """Why `share` and `figures` do not show a study that was edited since it was measured, nor measure it
    again; None where they may go on, or where anything else is asked for."""
    changed = [str(item) for item in redo if resume.takes_server([item])]
    if not only_redraws() or not changed:
        return None
    more = f" (and {len(changed) - 1} more)" if changed[1:] else ""
    return (
        f"{RESULTS}: {changed[0]}{more}: run `all` first, go back to the config that was measured,"
        " or leave these launches out with --config only_measured=True"
    )


def has_measured(study, results):
    """Whether what is asked for takes no server: results brought from elsewhere are finished and drawn also
    where their model is not."""
    return resume.all_measured(study, results) or (
        only_redraws() and resume.collected(study, results)
    )


def take_over(study, results):
    """The main process of a real run: lock the study, end what a dead run left, set stale records aside."""
    global study_lock
    served = has_measured(study, results)
    # A forced stage starts a server too, and Snakemake removes its record first.
    forced = forces_stages() or getattr(asked(), "forceall", False)
    if forced or not served:
        look_beforehand(study)
    try:
        study_lock = lease.lock_study(results)
    except BadInput as error:
        refuse(error)
    lease.claim_owner()
    lease.reap_stale(results, say=tell)
    # What is stale is looked up under the lock, once: another run may have changed it until then.
    redo = to_redo(study, results)
    if problem := changed_since(redo):
        refuse(problem)
    redo = to_be_moved(redo)
    if served and resume.takes_server(redo):
        look_beforehand(study)
    study.freeze(results / ".live/study.json")
    for item in redo:
        tell(f"set aside: {item}")
    resume.set_aside(redo, results)


def to_redo(study, results):
    """What is here that the config no longer vouches for, and the failures that this run would repeat."""
    return resume.plan_redo(study, results, reach=reach(study, results))


def reach(study, results):
    """How far this run takes each launch; None where it is not known, nowhere where it only shows them."""
    args = asked()
    if args is None:
        return None
    if only_redraws():
        return {}
    # Snakemake makes these too, besides its targets.
    more = (*args.prioritize, *args.forcerun, *args.until)
    wanted = (*(args.targets or ["all"]), *more)
    return targets.reach(study, results, wanted, args.until, args.omit_from)


def to_be_moved(redo):
    """What of it a run of these targets sets aside and makes again."""
    if not only_redraws():
        return redo
    return [r for r in redo if r.launch is None or r.stage == stages.EXTRACT.name]


if not REVIEWER:
    STUDY = load_study()
    RESULTS = f"results/{STUDY.name}"
    EMBEDDED = command.is_embedded(STUDY.config)
    PINS = sha256(f"{workflow.basedir}/{command.EMBEDDED_REQUIREMENTS}")
    ENV_STAMP = f"{command.EMBEDDED_ENV}/pins-{PINS[:12]}"
    TINY_MODELS = command.uses_tiny_models(STUDY.config)
    LAUNCHES = {(x.cell.id, x.id): x for x in STUDY.launches}
    ORDER = {key: len(LAUNCHES) - i for i, key in enumerate(LAUNCHES)}
    HERE = f"{RESULTS}/cells/{{cell}}/{{launch}}"
    CHAIN = [stage.name for stage in stages.chain(STUDY)]
    BEFORE_RELEASE = "capture.json" if "capture" in CHAIN else "benchmark.json"
    if real_run():
        take_over(STUDY, Path(RESULTS))
    elif getattr(asked(), "dryrun", False) and workflow.exec_mode == ExecMode.DEFAULT:
        # A dry run changes nothing, so Snakemake still counts these as made.
        stale = to_redo(STUDY, Path(RESULTS))
        to_be_redone = to_be_moved(stale)
        if problem := changed_since(stale):
            tell(f"a run would refuse: {problem}")
        for item in to_be_redone:
            tell(f"a run would first set aside: {item}")
        if not has_measured(STUDY, Path(RESULTS)) or resume.takes_server(to_be_redone):
            for problem in beforehand.problems(STUDY):
                tell(f"a run would refuse: {problem}")

    wildcard_constraints:
        cell="|".join(re.escape(c.id) for c in STUDY.launched),
        launch=r"l\d+",


# Offline jobs take every server slot, so that none of them ever runs beside a timed pass.
EXCLUSIVE = (
    workflow.global_resources["server_slot"].value
    if "server_slot" in workflow.global_resources
    else 1
)

# Later stages of a begun launch come before anything else; launches start in the study's random order.
RANK = {
    "release": 5,
    "capture": 4,
    "benchmark": 3,
    "gate": 2,
    "extract": 1,
    "launch": 0,
    "all_reduce": 0,
}


def priority(rule):
    def of(wildcards):
        key = (wildcards.cell, wildcards.launch)
        return RANK[rule] * (len(ORDER) + 1) + ORDER[key]

    return of


def before(record):
    """The record that a stage builds on. Its age means nothing; but a stage that a person forces is measured
    on a new server life, and then all that follows it in this launch is due as well."""
    return record if forces_stages() else ancient(record)


def digest(stage):
    def of(wildcards):
        launch = LAUNCHES[wildcards.cell, wildcards.launch]
        return stages.stage_digest(STUDY, launch.cell, stage)

    return of


def records(name):
    """The record `name` of every launch, in run order."""
    return [f"{RESULTS}/cells/{cell}/{launch}/{name}" for cell, launch in LAUNCHES]


def all_records():
    """Every record of every launch."""
    return [path for stage in stages.chain(STUDY) for path in records(stage.record)]
