from quietgate.steps import release

release.main(snakemake.output.record, snakemake.log[0])
