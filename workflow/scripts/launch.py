from quietgate.steps import launch

launch.main(snakemake.output.record, snakemake.log[0])
