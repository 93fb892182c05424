from quietgate.steps import report

report.main(snakemake.params.results, snakemake.log[0])
