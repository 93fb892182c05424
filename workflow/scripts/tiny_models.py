from quietgate.steps import embedded

embedded.tiny_models(snakemake.output.stamp, snakemake.log[0])
