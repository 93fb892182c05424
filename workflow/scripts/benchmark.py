from quietgate.steps import benchmark

benchmark.main(snakemake.output.record, snakemake.log[0])
