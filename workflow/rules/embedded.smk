# The default study's server and models, made on the spot: SGLang on CPU, a tiny target and its draft.


localrules:
    server_env,
    tiny_models,


rule server_env:
    output:
        stamp=f"{command.EMBEDDED_ENV}/quietgate-env.json",
    log:
        "resources/log/server_env.log",
    conda:
        ENV
    params:
        digest=sha256(f"{workflow.basedir}/{command.EMBEDDED_REQUIREMENTS}"),
    message:
        "install SGLang for CPU into resources/sglang-cpu (about 2 GB, a few minutes)"
    script:
        "../scripts/server_env.py"


rule tiny_models:
    input:
        env=ancient(f"{command.EMBEDDED_ENV}/quietgate-env.json"),
    output:
        stamp=f"{command.EMBEDDED_MODELS}/models.json",
    log:
        "resources/log/tiny_models.log",
    conda:
        ENV
    message:
        "train the tiny target and its draft into resources/tiny-models (about two minutes)"
    script:
        "../scripts/tiny_models.py"
