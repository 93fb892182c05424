from quietgate.steps import plot

plot.main(snakemake.params.results, snakemake.log[0])
