from quietgate.steps import release

release.main(snakemake.params.results, *snakemake.wildcards, snakemake.log[0])
