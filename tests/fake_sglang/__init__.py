"""A fake SGLang 0.5.23 server: same endpoints, log lines and process titles, no model.

Run it as `python tests/fake_sglang/server.py --model-path M --host H --port P [sglang flags]`, or
from a test with `fake_sglang.running.start(...)`. Text and acceptance depend on the prompt alone,
so greedy text is the same at every number of steps; its speed is set by the `--fake-*` flags:

    --fake-base-ms 4     a decode cycle of one request without speculation
    --fake-step-ms 0.6   added per speculative step
    --fake-seq-ms 0.05   added per further request in the batch
    --fake-prefill-ms 3  a prefill (its first token arrives after that)
    --fake-accept 0.6    probability that the draft guesses a token
    --fake-health-s 1    /health answers no earlier (SGLang sleeps one second there)
    --fake-nccl          every rank writes what NCCL would log (NCCL_DEBUG, NCCL_DEBUG_FILE)
    --fake-nccl-gain 1   factor on the base when NCCL_PROTO is set: a study with an effect
    --fake-launch-noise 0  standard deviation of a factor drawn once per launch

`FAKE_SGLANG_MODE` (or the file named by `FAKE_SGLANG_MODE_FILE`) makes it misbehave: see `modes`.
"""
