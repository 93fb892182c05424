from quietgate.steps import study

study.main(snakemake.params.results, snakemake.log[0])
