# The default study's server and models, made on the spot: SGLang on CPU, a tiny target and its draft.
# Neither rule has params: a job that must rerun for its params hides everything downstream of an `ancient`
# input from Snakemake. Other pins are another stamp instead.


localrules:
    server_env,
    tiny_models,


rule server_env:
    output:
        stamp=ENV_STAMP,
    log:
        "resources/log/server_env.log",
    conda:
        ENV
    message:
        "install SGLang for CPU into resources/sglang-cpu (about 2 GB, a few minutes)"
    script:
        "../scripts/server_env.py"


rule tiny_models:
    input:
        ancient(ENV_STAMP),
    output:
        stamp=f"{command.EMBEDDED_MODELS}/models.json",
    log:
        "resources/log/tiny_models.log",
    conda:
        ENV
    message:
        "train the tiny target and its draft into resources/tiny-models (about three minutes)"
    script:
        "../scripts/tiny_models.py"
