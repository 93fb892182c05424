from quietgate.steps import share

share.main(snakemake.input.page, snakemake.log[0])
