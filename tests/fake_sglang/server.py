"""Entry point of the fake SGLang server; run it by its path, with SGLang's own flags."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run by its path: the package is found beside it
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from fake_sglang import arguments, log, metrics, modes, nccl, ranks, trace, web
from fake_sglang.engine import Engine, Request, Speed
from fake_sglang.text import Answer, tokens_of

VERSION = "0.5.23"


class Server:
    """One node of the fake: its children, its engine, its endpoints."""

    def __init__(self, argv: list[str]):
        self.argv = argv
        given, fake, twice = arguments.parse(argv)
        self.args, warnings = arguments.resolve(given)
        self.given, self.fake = given, fake
        self.modes = modes.read(dict(os.environ), self.args)
        self.log = log.Log(self.args["tp_size"])
        for warning in warnings:
            self.log.line(warning)
        if twice:
            self.log.line(f"given twice, the last one counts: {', '.join(twice)}")
        self.ranks = ranks.of_this_node(self.args)
        self.children: list[Any] = []
        self.status = "Starting"
        self.answered = 0
        self.profile: dict[str, Any] | None = None
        self.engine = Engine(self.args, self._speed(), self.log)
        self.engine.on_forward = self._count_forward

    def _speed(self) -> Speed:
        def ms(name: str, default: float) -> float:
            return float(self.fake.get(name, default)) / 1000

        base = ms("base_ms", 4.0)
        if "NCCL_PROTO" in os.environ:
            base *= float(self.fake.get("nccl_gain", 1.0))
        noise = float(self.fake.get("launch_noise", 0.0))
        base *= max(0.5, random.SystemRandom().gauss(1.0, noise)) if noise else 1.0
        return Speed(
            base,
            ms("step_ms", 0.6),
            ms("seq_ms", 0.05),
            ms("prefill_ms", 3.0),
            float(self.fake.get("accept", 0.6)),
        )

    # ------------------------------------------------------------------ boot and end

    def boot(self) -> None:
        """Everything SGLang does before its HTTP server listens."""
        self._apply_wrong_args()
        self.log.line(f"server_args={self.args!r}")
        if "ignore-term" in self.modes:  # inherited by the children
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        environ = ranks.environment(dict(os.environ), "lose-env" in self.modes)
        for rank in self.ranks:
            self.children.append(ranks.start(ranks.title(self.args, rank), environ))
        if self.args["node_rank"] == 0:
            self.children.append(ranks.start("sglang::detokenizer", environ))
        if "grandchildren" in self.modes:
            ranks.run_away()
        for rank in self.ranks:
            self.log.line("Init torch distributed begin.", rank)
        if self.fake.get("nccl"):
            for rank, child in zip(self.ranks, self.children, strict=False):
                nccl.write(environ, rank, self.args["tp_size"], child.pid)
        for rank in self.ranks:
            self.log.line("Load weight begin. avail mem=139.09 GB", rank)
        if "crash-at-start" in self.modes:
            time.sleep(float(self.modes["crash-at-start"] or 0.1))
            self.die(log.OUT_OF_MEMORY)
        if "exit-at-start" in self.modes:
            self.exit(int(self.modes["exit-at-start"] or 3))
        for rank in self.ranks:
            self.log.line(
                "Load weight end. elapsed=0.14 s, type=LlamaForCausalLM, avail mem=139.05 GB,"
                " mem usage=0.04 GB.",
                rank,
            )
        if "slow-start" in self.modes:
            time.sleep(float(self.modes["slow-start"] or 5))
        if not self.args["disable_cuda_graph"]:
            self.log.capture(self.args, self.ranks)
        context = self.args["context_length"] or 8192
        memory = "available_cpu_mem" if self.args["device"] == "cpu" else "available_gpu_mem"
        self.log.line(
            f"max_total_num_tokens={self.args['max_total_tokens'] or 65536}, chunked_prefill_size="
            f"{self.args['chunked_prefill_size']}, max_prefill_tokens="
            f"{self.args['max_prefill_tokens']}, max_running_requests={self.engine.max_running},"
            f" context_len={context}, {memory}=96.70 GB",
            0,
        )

    def _apply_wrong_args(self) -> None:
        if "wrong-args" not in self.modes:
            return
        name, equals, value = self.modes["wrong-args"].partition("=")
        if not equals:  # the first numeric argument that the launch asked for
            candidates = [k for k, v in self.given.items() if type(v) is int and k not in ("port", "tp_size")]
            name = candidates[0] if candidates else "chunked_prefill_size"
            value = str(self.args[name] + 1)
        self.args[name] = arguments._value(value)

    def die(self, why: str) -> None:
        """End as SGLang does when a rank has died: log, signal, everything killed."""
        self.log.line(why, self.ranks[0])
        self.log.line(log.SIGQUIT)
        for child in self.children:
            child.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    def exit(self, status: int) -> None:
        """End by itself in the middle of a stage, with an error that no table of failures knows."""
        self.log.line(log.UNKNOWN)
        for child in self.children:
            child.kill()
            child.wait()
        os._exit(status)

    def terminate(self) -> None:
        """SIGTERM: drain and leave."""
        self.log.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        for child in self.children:
            child.kill()
            child.wait()
        self.log.line(
            "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[]."
        )
        sys.stdout.flush()
        os._exit(0)

    # ------------------------------------------------------------------ generation

    def _mode_now(self, name: str) -> bool:
        return name in self.modes and self.answered >= int(self.modes[name] or 0)

    def _request(self, body: dict[str, Any]) -> Request:
        ids = body.get("input_ids")
        if ids is None:
            ids = tokens_of(body["text"])
        sampling = body.get("sampling_params") or {}
        greedy = float(sampling.get("temperature", 1.0)) == 0
        salt = "" if greedy else str(random.SystemRandom().random())
        limit = sampling.get("max_new_tokens")
        room = (self.args["context_length"] or 8192) - len(ids)
        if not ids or room <= 0:
            raise ValueError(f"the input has {len(ids)} tokens and the context is too short for it")
        return Request(
            ids=list(ids),
            answer=Answer(list(ids), self.engine.speed.accept, "degenerate" in self.modes, salt),
            max_new_tokens=min(int(limit) if limit is not None else 128, room),
            ignore_eos=bool(sampling.get("ignore_eos")),
            on_tokens=lambda request: None,
            stream=bool(body.get("stream")),
            rid=f"{random.getrandbits(128):032x}",
        )

    def _meta(self, request: Request) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": request.rid,
            "finish_reason": request.finish,
            "prompt_tokens": len(request.ids),
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": request.done,
            "cached_tokens": request.cached,
            "dp_rank": None,
        }
        if request.finish is None:
            return meta
        meta["e2e_latency"] = request.finished - request.received
        if request.verify_ct:
            draft = self.args["speculative_num_draft_tokens"] - 1
            proposed = request.verify_ct * draft
            meta |= {
                "spec_accept_rate": request.correct / proposed,
                "spec_accept_length": request.done / request.verify_ct,
                "spec_num_correct_drafts": request.correct,
                "spec_num_proposed_drafts": proposed,
                "spec_verify_ct": request.verify_ct,
                "spec_correct_drafts_histogram": request.histogram,
            }
        if self.args["enable_metrics"]:
            meta["request_received_ts"] = request.received
            meta["first_token_latency"] = request.first_token - request.received
            meta["request_finished_ts"] = request.finished
            spent = request.finished - request.first_token
            if request.done > 1 and spent > 0:
                meta["decode_throughput"] = (request.done - 1) / spent
        return meta

    def _output(self, request: Request) -> str:
        # The text grows with every chunk, as SGLang sends it; cached so that the fake stays fast.
        known, length = getattr(request, "said", ("", 0))
        said = known + request.answer.text(length, request.done)
        request.said = (said, request.done)  # type: ignore[attr-defined]
        value = {"text": said, "output_ids": request.answer.ids(request.done)}
        return json.dumps(value | {"meta_info": self._meta(request)}, ensure_ascii=False)

    async def generate(self, call: web.Call) -> None:
        """POST /generate, whole or as a stream."""
        if self._mode_now("http-500"):
            return call.value(500, {"error": {"message": "the fake was told to fail"}})
        if "never-healthy" in self.modes:
            await asyncio.sleep(3600)
        try:
            body = call.json()
            request = self._request(body)
        except (ValueError, KeyError, TypeError) as e:
            return call.value(400, {"error": {"message": f"{type(e).__name__}: {e}"}})
        done = asyncio.Event()
        stream = request.stream
        spoil = {m for m in ("hang", "cut-stream", "crash-mid-request") if self._mode_now(m)}
        middle = max(2, request.max_new_tokens // 2)
        interval = int(self.args["stream_interval"] or 1)
        sent = 0

        def on_tokens(request: Request) -> None:
            nonlocal sent
            if spoil and request.done >= middle:
                if "crash-mid-request" in spoil:
                    self.die(log.DIED)
                self.engine.abort(request)
                if "cut-stream" in spoil:
                    call.cut()
                    done.set()
                return
            if stream and (request.finish or request.done - sent >= interval or not sent):
                sent = request.done
                call.event(self._output(request))
            if request.finish:
                self.answered += 1
                done.set()

        request.on_tokens = on_tokens
        if "healthy-but-no-decode" in self.modes and request.max_new_tokens > 1:
            self.engine.stuck = True
        if stream:
            call.open_stream()
        self.engine.submit(request)
        gone = asyncio.ensure_future(self._gone(call))
        waiting = asyncio.ensure_future(done.wait())
        await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not done.is_set():
            waiting.cancel()
            return self.engine.abort(request)
        if call.writer.is_closing():
            return None
        if stream:
            call.event("[DONE]")
            return call.end_stream()
        return call.text(200, self._output(request), "application/json")

    async def _gone(self, call: web.Call) -> None:
        """Returns when the client has closed its connection."""
        while not call.writer.is_closing():
            await asyncio.sleep(0.2)

    # ------------------------------------------------------------------ the other endpoints

    async def health(self, call: web.Call) -> None:
        """GET /health: 503 until warmed up; then a probe whose answer takes a second."""
        if self.status != "Up":
            return call.text(503, "")
        started = time.monotonic()
        probe = self._request({"input_ids": [0], "sampling_params": {"max_new_tokens": 1}})
        got = asyncio.Event()
        probe.on_tokens = lambda request: got.set()
        if not self.engine.running and not self.engine.waiting:
            self.engine.submit(probe)
        else:  # a busy scheduler is asked nothing: any sign of life will do
            got.set()
        await asyncio.sleep(float(self.fake.get("health_s", 1.0)))
        try:
            await asyncio.wait_for(got.wait(), 20 - (time.monotonic() - started))
        except TimeoutError:
            self.log.line(
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
            )
            return call.text(503, "")
        return call.text(200, "")

    def server_info(self) -> dict[str, Any]:
        """The body of /server_info."""
        limit = self.args["max_total_tokens"] or 65536
        graph = {} if self.args["disable_cuda_graph"] else {"decode": 0.04}
        state = dict(self.args) | {
            "world_size": self.args["tp_size"] * self.args["pp_size"],
            "effective_max_running_requests_per_dp": self.engine.max_running,
            "last_gen_throughput": self.engine.throughput,
            "memory_usage": {"weight": 0.04, "kvcache": 0.1, "token_capacity": limit}
            | {"startup_available": 96.7, "graph": graph},
            "decode_cuda_graph_bs": [] if self.args["disable_cuda_graph"] else [1, 2, 4, 8],
        }
        if self.engine.accept_length is not None:
            state["avg_spec_accept_length"] = self.engine.accept_length
        return dict(self.args) | {
            "launch_command": " ".join(self.argv),
            "status": "ready",
            "max_total_num_tokens": limit,
            "max_req_input_len": (self.args["context_length"] or 8192) - 6,
            "startup_time": {"load_weight": 0.05, "tokenizer_e2e": 0.1},
            "internal_states": [state],
            "version": VERSION,
            "frontend": "python",
        }

    def _count_forward(self, decode: bool) -> None:
        if self.args["device"] == "cpu" and metrics.device_timer():
            self.die(log.NO_CPU_TIMER)
        profile = self.profile
        if profile is None or profile["left"] is None:
            return
        profile["decodes"] += decode
        profile["left"] -= 1
        if profile["left"] <= 0:
            self._stop_profile()

    def _stop_profile(self) -> None:
        profile, self.profile = self.profile, None
        assert profile is not None
        self.log.line("Stop profiling...", 0)
        trace.write(
            Path(profile["folder"]),
            profile["id"],
            profile["decodes"],
            self.args,
            self.ranks,
            os.getpid(),
        )
        self.log.line(f"Profiling done. Traces are saved to: {profile['folder']}", 0)

    def start_profile(self, call: web.Call) -> None:
        """POST /start_profile: answered at once, the files come after `num_steps` forwards."""
        body = call.json()
        if self.profile is not None:
            return call.text(500, "Profiling is already in progress. Call /stop_profile first.\n")
        folder = body.get("output_dir") or os.environ.get("SGLANG_TORCH_PROFILER_DIR", "/tmp")
        prefix = body.get("profile_prefix")
        identity = (f"{prefix}-" if prefix else "") + str(time.time())
        left = body.get("num_steps")
        self.profile = {"folder": folder, "id": identity, "left": left, "decodes": 0}
        self.log.line(f"Profiling starts. Traces will be saved to: {folder} (with profile id: {identity})", 0)
        return call.text(200, "Start profiling.\n")

    def stop_profile(self, call: web.Call) -> None:
        """POST /stop_profile."""
        if self.profile is None:
            return call.text(500, "Profiling is not in progress. Call /start_profile first.\n")
        self._stop_profile()
        return call.text(200, "Stop profiling. This will take some time.\n")

    def flush_cache(self, call: web.Call) -> None:
        """GET or POST /flush_cache: refused (400) while requests run."""
        done = self.engine.flush()
        said = "Cache flushed." if done else "Flush cache failed."
        call.text(200 if done else 400, f"{said}\nPlease check backend logs for more details.\n")

    async def answer(self, call: web.Call) -> None:
        """Answer one call and log it as uvicorn does."""
        args = self.args
        match call.path:
            case "/generate":
                await self.generate(call)
            case "/health" | "/health_generate":
                await self.health(call)
            case "/ready":
                call.text(200 if self.status == "Up" else 503, "")
            case "/v1/models":
                model = {"id": args["served_model_name"], "object": "model", "owned_by": "sglang"}
                call.value(200, {"object": "list", "data": [model]})
            case "/model_info" | "/get_model_info":
                call.value(
                    200,
                    {
                        "model_path": args["model_path"],
                        "tokenizer_path": args["tokenizer_path"],
                        "is_generation": True,
                        "weight_version": "default",
                    },
                )
            case "/server_info" | "/get_server_info":
                call.value(200, self.server_info())
            case "/flush_cache":
                self.flush_cache(call)
            case "/metrics" if args["enable_metrics"]:
                kind = "text/plain; version=0.0.4; charset=utf-8"
                call.text(200, metrics.text(self.engine, args, self.ranks), kind)
            case "/start_profile":
                self.start_profile(call)
            case "/stop_profile":
                self.stop_profile(call)
            case _:
                call.value(404, {"detail": "Not Found"})
        peer = call.writer.get_extra_info("peername") or ("127.0.0.1", 0)
        status = call.status
        phrase = web.HTTPStatus(status).phrase if status else ""
        self.log.access(f"{peer[0]}:{peer[1]}", call.method, call.path, status, phrase)

    # ------------------------------------------------------------------ life

    async def warm_up(self) -> None:
        """SGLang's own warm-up request, after which it says that it is ready."""
        if "never-healthy" in self.modes:
            return
        if not self.args["skip_server_warmup"]:
            body = {"text": "The capital city of France is"}
            request = self._request(body | {"sampling_params": {"max_new_tokens": 8}})
            done = asyncio.Event()
            request.on_tokens = lambda r: done.set() if r.finish else None
            self.engine.submit(request)
            await done.wait()
        self.status = "Up"
        self.log.line(f"fake_sglang: ready {time.time():.3f}")
        self.log.line("The server is fired up and ready to roll!")

    async def live(self) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        if "ignore-term" not in self.modes:
            loop.add_signal_handler(signal.SIGTERM, self.terminate)
        loop.add_signal_handler(signal.SIGINT, self.terminate)
        if self.args["node_rank"] != 0:
            await asyncio.sleep(float("inf"))
        host, port = self.args["host"], self.args["port"]
        try:
            listening = await web.serve(host, port, self.answer)
        except OSError as e:
            self.log.line(
                f"ERROR:    [Errno {e.errno}] error while attempting to bind on address"
                f" ('{host}', {port}): address already in use"
            )
            os._exit(1)
        port = listening.sockets[0].getsockname()[1]
        self.log.line(f"INFO:     Started server process [{os.getpid()}]")
        self.log.line("INFO:     Application startup complete.")
        self.log.line(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        engine = asyncio.ensure_future(self.engine.run())
        warm = asyncio.ensure_future(self.warm_up())
        await asyncio.gather(engine, warm)


def main(argv: list[str]) -> None:
    """Boot and serve."""
    server = Server(argv)
    server.boot()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.live())


if __name__ == "__main__":
    main(sys.argv[1:])
