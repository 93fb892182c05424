from quietgate.steps import extract

extract.main(snakemake.output.record, snakemake.log[0])
