from quietgate.steps import embedded

embedded.server_env(snakemake.output.stamp, snakemake.log[0])
