from quietgate.steps import gate

gate.main(snakemake.params.results, *snakemake.wildcards, snakemake.log[0])
