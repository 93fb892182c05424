from quietgate.steps import study

study.main(snakemake.output.record, snakemake.log[0])
