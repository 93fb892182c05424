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
        folder=command.EMBEDDED_ENV,
        digest=sha256(f"{workflow.basedir}/{command.EMBEDDED_REQUIREMENTS}"),
    message:
        "install SGLang for CPU into {params.folder} (about 2 GB, a few minutes)"
    shell:
        "{sys.executable} {workflow.basedir:q}/workflow/embedded/build_env.py {params.folder:q}"
        " --requirements {workflow.basedir:q}/{command.EMBEDDED_REQUIREMENTS} 2>&1 | tee {log:q}"


rule tiny_models:
    input:
        env=ancient(f"{command.EMBEDDED_ENV}/quietgate-env.json"),
    output:
        stamp=f"{command.EMBEDDED_MODELS}/models.json",
    log:
        "resources/log/tiny_models.log",
    conda:
        ENV
    params:
        folder=command.EMBEDDED_MODELS,
    message:
        "train the tiny target and its draft into {params.folder} (about a minute)"
    shell:
        "{command.EMBEDDED_ENV}/bin/python {workflow.basedir:q}/workflow/embedded/make_tiny_models.py"
        " --out {params.folder:q} 2>&1 | tee {log:q}"
