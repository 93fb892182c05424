from quietgate.steps import all_reduce

all_reduce.main(snakemake.output.record, snakemake.log[0])
