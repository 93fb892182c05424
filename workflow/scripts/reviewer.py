from quietgate.steps import reviewer

reviewer.main(snakemake.params.results, snakemake.params.scratch, snakemake.log[0])
