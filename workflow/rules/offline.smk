# From records to tables, figures and the report. No server; but never beside a timed pass, so these take
# every server slot (an exclusive resource).


from quietgate.draw import shown


report: "../report/workflow.rst"


# For Snakemake's own report only: which figures there are follows from the tables, so they are no outputs that
# a rule could promise. In every other call the targets are the same as ever.
SHOWN = (
    f"{RESULTS}/figures"
    if makes_report() and Path(RESULTS, "figures/figures.json").is_file()
    else []
)


localrules:
    all,
    measured,
    figures,
    study,
    extract,
    collect,
    plot,
    report_page,
    check,


rule all:
    default_target: True
    input:
        f"{RESULTS}/study.json",
        all_records(),
        f"{RESULTS}/tables/tables.json",
        f"{RESULTS}/figures/figures.json",
        f"{RESULTS}/report.html",
        f"{RESULTS}/check.json",
        report(
            SHOWN,
            patterns=["{figure}.svg"],
            caption="../report/figure.rst",
            category=shown.category,
            labels=shown.labels(Path(RESULTS, "figures")),
        ),


# Everything that needs a server, and what is extracted from it; no tables, no figures.
rule measured:
    input:
        f"{RESULTS}/study.json",
        all_records(),


rule figures:
    input:
        f"{RESULTS}/figures/figures.json",
        f"{RESULTS}/report.html",


rule study:
    output:
        record=f"{RESULTS}/study.json",
    log:
        f"{RESULTS}/log/study.log",
    priority: 10_000_000
    conda:
        ENV
    params:
        digest=resume.study_digest(STUDY),
    message:
        "write down the study"
    script:
        "../scripts/study.py"


rule extract:
    input:
        [
            f"{HERE}/{s.record}"
            for s in stages.chain(STUDY)
            if s.name in ("benchmark", "capture")
        ],
        ended=ancient(f"{HERE}/exit.json"),
    output:
        record=f"{HERE}/profile.json",
    log:
        f"{HERE}/log/extract.log",
    priority: priority("extract")
    conda:
        ENV
    resources:
        server_slot=EXCLUSIVE,
    params:
        digest=digest(stages.EXTRACT),
    message:
        "extract where the time went in {wildcards.cell}, {wildcards.launch}"
    script:
        "../scripts/extract.py"


rule collect:
    input:
        f"{RESULTS}/study.json",
        all_records(),
    output:
        record=f"{RESULTS}/tables/tables.json",
    log:
        f"{RESULTS}/log/collect.log",
    conda:
        ENV
    resources:
        server_slot=EXCLUSIVE,
    params:
        digest=stages.tables_digest(STUDY),
    message:
        "collect the records into tables"
    script:
        "../scripts/collect.py"


rule plot:
    input:
        f"{RESULTS}/tables/tables.json",
    output:
        record=f"{RESULTS}/figures/figures.json",
    log:
        f"{RESULTS}/log/plot.log",
    conda:
        ENV
    resources:
        server_slot=EXCLUSIVE,
    params:
        digest=stages.figures_digest(STUDY),
    message:
        "draw the figures"
    script:
        "../scripts/plot.py"


rule report_page:
    input:
        f"{RESULTS}/figures/figures.json",
    output:
        page=f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/log/report.log",
    conda:
        ENV
    resources:
        server_slot=EXCLUSIVE,
    params:
        digest=stages.figures_digest(STUDY),
    message:
        "write the report"
    script:
        "../scripts/report.py"


rule check:
    input:
        f"{RESULTS}/report.html",
        f"{RESULTS}/tables/tables.json",
    output:
        record=f"{RESULTS}/check.json",
    log:
        f"{RESULTS}/log/check.log",
    priority: -1
    conda:
        ENV
    params:
        digest=stages.tables_digest(STUDY),
    message:
        "check that every cell passed"
    script:
        "../scripts/check.py"
