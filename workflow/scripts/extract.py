from quietgate.steps import extract

extract.main(snakemake.params.results, *snakemake.wildcards, snakemake.log[0])
