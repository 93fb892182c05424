from quietgate.steps import gate

gate.main(snakemake.output.record, snakemake.log[0])
