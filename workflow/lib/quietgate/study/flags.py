"""SGLang's command line as argparse reads it: aliases, abbreviations, the last word wins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

# Flag -> the name of the argument it sets, where they are not the same word (0.4.6 to 0.5.23).
ALIASES = {
    "model": "model_path",
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "ep": "ep_size",
    "decode_context_parallel_size": "dcp_size",
    "attention_data_parallel_size": "attn_dp_size",
    "attention_context_parallel_size": "attn_cp_size",
    "moe_data_parallel_size": "moe_dp_size",
    "nccl_init_addr": "dist_init_addr",
    "speculative_draft_model": "speculative_draft_model_path",
    "enable_hicache": "enable_hierarchical_cache",
    "fp8_gemm_backend": "fp8_gemm_runner_backend",
    "fp4_gemm_backend": "fp4_gemm_runner_backend",
}

# Abbreviations that argparse resolves and that people write; kept even where a later release adds a
# second flag with the same beginning.
COMMON_ABBREVIATIONS = {"tp": "tp_size", "dp": "dp_size", "pp": "pp_size"}

# Flags whose argument got another name in a later release: the effective value is looked for there.
RENAMED = {
    "cuda_graph_max_bs": ("cuda_graph_max_bs_decode",),
    "cuda_graph_bs": ("cuda_graph_bs_decode",),
    "disable_piecewise_cuda_graph": ("disable_prefill_cuda_graph",),
    "enable_flashinfer_allreduce_fusion": ("flashinfer_allreduce_fusion_backend",),
}


@dataclass(frozen=True)
class Flags:
    """What a command line asks for.

    Attributes:
        values: argument name -> True for a bare flag, a text, or a list of texts; the last one given.
        repeated: names given more than once, with every value.
    """

    values: dict[str, bool | str | list[str]]
    repeated: dict[str, list[bool | str | list[str]]] = field(default_factory=dict)

    def given(self, name: str) -> bool:
        """Whether the argument is on the command line, under any of its names."""
        return self._find(name) is not None

    def integer(self, name: str, default: int) -> int:
        """The argument as a whole number, `default` where it is absent or no number."""
        value = self._find(name)
        try:
            return int(value) if isinstance(value, str) else default
        except ValueError:
            return default

    def text(self, name: str) -> str | None:
        """The argument as text, or None."""
        value = self._find(name)
        return value if isinstance(value, str) else None

    def _find(self, name: str) -> bool | str | list[str] | None:
        return self.values.get(name)


def parse(argv: Sequence[str]) -> Flags:
    """The flags of a command line; the program and anything before the first flag is skipped.

    A value is whatever follows a flag and does not start with two dashes; SGLang has no positional
    arguments and no short options.
    """
    values: dict[str, bool | str | list[str]] = {}
    seen: dict[str, list[bool | str | list[str]]] = {}
    name: str | None = None
    words: list[str] = []

    def close() -> None:
        if name is None:
            return
        value: bool | str | list[str] = True if not words else words[0] if len(words) == 1 else words
        values[name] = value
        seen.setdefault(name, []).append(value)

    for token in argv:
        if token.startswith("--") and len(token) > 2:
            close()
            flag, equals, attached = token[2:].partition("=")
            name = canonical(flag)
            words = [attached] if equals else []
        elif name is not None:
            words.append(token)
    close()
    return Flags(values, {n: v for n, v in seen.items() if len(v) > 1})


def canonical(flag: str) -> str:
    """The argument's name for a flag without its dashes, aliases and usual abbreviations resolved."""
    name = flag.replace("-", "_")
    name = COMMON_ABBREVIATIONS.get(name, name)
    return ALIASES.get(name, name)


def effective_name(name: str, known: Collection[str]) -> tuple[str | None, str | None]:
    """Where the server reports an argument: (its name there or None, how it was found or None).

    Args:
        name: as `parse` gives it.
        known: the names that the server reports.
    """
    if name in known:
        return name, None
    for later in RENAMED.get(name, ()):
        if later in known:
            return later, f"renamed {later}"
    if name.startswith("no_") and name[3:] in known:
        return name[3:], f"negation of {name[3:]}"
    longer = sorted(k for k in known if k.startswith(name))
    longer += sorted(a for a in ALIASES if a.startswith(name) and ALIASES[a] in known)
    targets = {ALIASES.get(found, found) for found in longer}
    if len(targets) == 1:
        target = targets.pop()
        return target, f"abbreviation of --{target.replace('_', '-')}"
    return None, None
