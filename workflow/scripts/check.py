from quietgate.steps import check

check.main(snakemake.params.results, snakemake.log[0])
