from quietgate.steps import benchmark

benchmark.main(snakemake.params.results, *snakemake.wildcards, snakemake.log[0])
