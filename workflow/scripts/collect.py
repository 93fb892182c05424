from quietgate.steps import collect

collect.main(snakemake.params.results, snakemake.log[0])
