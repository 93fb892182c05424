# The archive for reviewers. Not part of `all`: it is made when asked for, from whatever the study holds.


localrules:
    share,


rule share:
    input:
        RESULTS + "/tables/tables.json",
        RESULTS + "/figures/figures.json",
        RESULTS + "/report.html",
    log:
        RESULTS + "/log/share.log",
    conda:
        ENV
    resources:
        server_slot=EXCLUSIVE,
    params:
        results=RESULTS,
        folder="results",
    message:
        "pack {params.results} for reviewers"
    script:
        "../scripts/share.py"
