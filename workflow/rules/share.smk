# The archive for reviewers. Not part of `all`: it is made when asked for, from whatever the study holds.


localrules:
    share,


rule share:
    input:
        f"{RESULTS}/tables/tables.json",
        f"{RESULTS}/figures/figures.json",
        page=f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/log/share.log",
    conda:
        ENV
    resources:
        server_slot=EXCLUSIVE,
    message:
        "pack the study for reviewers"
    script:
        "../scripts/share.py"
