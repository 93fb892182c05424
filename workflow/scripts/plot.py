from quietgate.steps import plot

plot.main(snakemake.output.record, snakemake.log[0])
