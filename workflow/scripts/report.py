from quietgate.steps import report

report.main(snakemake.output.page, snakemake.log[0])
