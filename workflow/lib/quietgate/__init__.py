"""Quietgate: what speculative steps and NCCL settings do to an SGLang server, measured and proved.

Layers, each importing only from those before it::

    errors, files, records, provenance      words, atomic files, validated records, where we ran
    inspect                                 readers of logs, traces, metrics and result files
    study                                   config -> cells, launches, exact commands, digests
    serve                                   the leased server: launch, ownership, end
    measure                                 the client: prompts, passes, stage timer, profiler
    gate                                    nine proofs that a server is ready and as asked
    analyse                                 tables and statistics
    draw                                    figures and the report
    share                                   archive, checksums, verification
    steps                                   one function per workflow rule
"""

__version__ = "0.1.0"
