from quietgate.steps import launch

launch.main(snakemake.params.results, *snakemake.wildcards, snakemake.log[0])
