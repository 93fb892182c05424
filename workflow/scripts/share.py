from quietgate.steps import share

share.main(snakemake.params.results, snakemake.params.folder, snakemake.log[0])
