# One server life per launch: launch -> gate -> benchmark -> capture -> release. The server outlives the
# jobs; who owns it and how it always ends is in workflow/lib/quietgate/serve.


# What a server of this study needs first.
BEFORE_SERVER = [
    *([ancient(ENV_STAMP)] if EMBEDDED else []),
    *([ancient(f"{command.EMBEDDED_MODELS}/models.json")] if TINY_MODELS else []),
]


if "all_reduce" in CHAIN:

    rule all_reduce:
        input:
            BEFORE_SERVER,
        output:
            record=f"{HERE}/all_reduce.json",
        log:
            f"{HERE}/log/all_reduce.log",
        priority: priority("all_reduce")
        group:
            "cell"
        conda:
            ENV
        threads: 1
        resources:
            server_slot=1,
        params:
            digest=digest(stages.ALL_REDUCE),
        message:
            "check the all-reduces of {wildcards.cell}, {wildcards.launch}"
        script:
            "../scripts/all_reduce.py"


rule launch:
    input:
        BEFORE_SERVER,
        before(f"{HERE}/all_reduce.json") if "all_reduce" in CHAIN else [],
    output:
        record=f"{HERE}/launch.json",
    log:
        f"{HERE}/log/launch.log",
    priority: priority("launch")
    group:
        "cell"
    conda:
        ENV
    threads: 1
    resources:
        server_slot=1,
    params:
        digest=digest(stages.LAUNCH),
    message:
        "launch the server of {wildcards.cell}, {wildcards.launch}"
    script:
        "../scripts/launch.py"


rule gate:
    input:
        before(f"{HERE}/launch.json"),
    output:
        record=f"{HERE}/gate.json",
    log:
        f"{HERE}/log/gate.log",
    priority: priority("gate")
    group:
        "cell"
    conda:
        ENV
    threads: 1
    resources:
        server_slot=1,
    params:
        digest=digest(stages.GATE),
    message:
        "prove that the server of {wildcards.cell}, {wildcards.launch} is ready and as asked"
    script:
        "../scripts/gate.py"


rule benchmark:
    input:
        before(f"{HERE}/gate.json"),
    output:
        record=f"{HERE}/benchmark.json",
        stages=f"{HERE}/stages.json",
        requests=f"{HERE}/requests.jsonl",
    log:
        f"{HERE}/log/benchmark.log",
    priority: priority("benchmark")
    group:
        "cell"
    conda:
        ENV
    threads: 1
    resources:
        server_slot=1,
    params:
        digest=digest(stages.BENCHMARK),
    message:
        "benchmark {wildcards.cell}, {wildcards.launch}"
    script:
        "../scripts/benchmark.py"


if "capture" in CHAIN:

    rule capture:
        input:
            before(f"{HERE}/benchmark.json"),
        output:
            record=f"{HERE}/capture.json",
        log:
            f"{HERE}/log/capture.log",
        priority: priority("capture")
        group:
            "cell"
        conda:
            ENV
        threads: 1
        resources:
            server_slot=1,
        params:
            digest=digest(stages.CAPTURE),
        message:
            "record a short profile of {wildcards.cell}, {wildcards.launch}"
        script:
            "../scripts/capture.py"


rule release:
    input:
        before(f"{HERE}/{BEFORE_RELEASE}"),
    output:
        record=f"{HERE}/exit.json",
        server_log=f"{HERE}/server.log",
    log:
        f"{HERE}/log/release.log",
    priority: priority("release")
    group:
        "cell"
    conda:
        ENV
    threads: 1
    resources:
        server_slot=1,
    params:
        digest=digest(stages.RELEASE),
    message:
        "stop the server of {wildcards.cell}, {wildcards.launch}"
    script:
        "../scripts/release.py"
