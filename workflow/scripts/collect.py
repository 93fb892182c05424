from quietgate.steps import collect

collect.main(snakemake.output.record, snakemake.log[0])
