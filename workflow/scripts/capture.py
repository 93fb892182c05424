from quietgate.steps import capture

capture.main(snakemake.params.results, *snakemake.wildcards, snakemake.log[0])
