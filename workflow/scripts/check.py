from quietgate.steps import check

check.main(snakemake.output.record, snakemake.log[0])
