# Reviewer mode (--config results=PATH, a folder or an archive): verify, redraw into a folder of its own, compare.
# There are neither inputs nor outputs, so that no file's time and no metadata decides whether it is done.


from quietgate.share.archive import look

# What can be seen without writing is refused here, in one line; a job's failure has Snakemake's after ours.
if real_run():
    try:
        look(Path(str(config["results"])))
    except BadInput as error:
        refuse(error)


# Resolved first: the name of `..` would be a folder that is not ours to empty.
RESULTS_NAME = Path(str(config["results"])).resolve().stem.removesuffix(".tar")
SCRATCH = f"resources/redrawn/{RESULTS_NAME or 'results'}"


localrules:
    all,
    figures,


rule figures:
    default_target: True
    log:
        "resources/log/reviewer.log",
    conda:
        ENV
    params:
        results=verbatim(str(config["results"])),
        scratch=verbatim(SCRATCH),
    message:
        "verify and redraw {params.results}"
    script:
        "../scripts/reviewer.py"


use rule figures as all with:
    log:
        "resources/log/reviewer_all.log",
