from quietgate.steps import capture

capture.main(snakemake.output.record, snakemake.log[0])
