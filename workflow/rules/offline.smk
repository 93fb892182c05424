# From records to tables, figures and the report. No server; but never beside a timed pass, so these take
# every server slot (an exclusive resource).


localrules:
    all,
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
        RESULTS + "/study.json",
        all_records(),
        RESULTS + "/tables/tables.json",
        RESULTS + "/figures/figures.json",
        RESULTS + "/report.html",
        RESULTS + "/check.json",


rule figures:
    input:
        RESULTS + "/figures/figures.json",
        RESULTS + "/report.html",


rule study:
    output:
        record=RESULTS + "/study.json",
    log:
        RESULTS + "/log/study.log",
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
            HERE + f"/{s.record}"
            for s in stages.chain(STUDY)
            if s.name in ("benchmark", "capture")
        ],
        ended=ancient(HERE + "/exit.json"),
    output:
        record=HERE + "/profile.json",
    log:
        HERE + "/log/extract.log",
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
        RESULTS + "/study.json",
        all_records(),
    output:
        record=RESULTS + "/tables/tables.json",
    log:
        RESULTS + "/log/collect.log",
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
        RESULTS + "/tables/tables.json",
    output:
        record=RESULTS + "/figures/figures.json",
    log:
        RESULTS + "/log/plot.log",
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
        RESULTS + "/figures/figures.json",
    output:
        page=RESULTS + "/report.html",
    log:
        RESULTS + "/log/report.log",
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
        RESULTS + "/report.html",
        RESULTS + "/tables/tables.json",
    output:
        record=RESULTS + "/check.json",
    log:
        RESULTS + "/log/check.log",
    priority: -1
    conda:
        ENV
    params:
        digest=stages.tables_digest(STUDY),
    message:
        "check that every cell passed"
    script:
        "../scripts/check.py"
