"""A small Llama in plain PyTorch; its parameters have the names that SGLang's Llama loads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROPE_THETA = 10_000.0
NORM_EPS = 1e-5

# Keys and values of the positions before, [batch, heads, n, head size] each.
Past = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; `kv_heads` are the key/value heads that the `heads` query heads share."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int

    @property
    def head_size(self) -> int:
        """Channels of one attention head."""
        return self.hidden // self.heads

    @property
    def mlp(self) -> int:
        """Channels inside the feed-forward block."""
        return 2 * self.hidden


class RMSNorm(nn.Module):
    """Scale to unit root mean square."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, NORM_EPS)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer without bias, as all of Llama's are."""
    return nn.Linear(inputs, outputs, bias=False)


def rotary(x: Tensor, first: int = 0) -> Tensor:
    """Rotate [batch, heads, n, head size] by positions first, first + 1, ..., the two halves as one plane."""
    n, size = x.shape[-2:]
    speeds = ROPE_THETA ** (-torch.arange(0, size, 2, device=x.device) / size)
    angles = torch.arange(first, first + n, device=x.device)[:, None] * speeds
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Heads(nn.Module):
    """The projections of an attention block: `inputs` channels to query, key and value heads, and back."""

    def __init__(self, shape: Shape, inputs: int):
        super().__init__()
        self.shape = shape
        self.q_proj = linear(inputs, shape.heads * shape.head_size)
        self.k_proj = linear(inputs, shape.kv_heads * shape.head_size)
        self.v_proj = linear(inputs, shape.kv_heads * shape.head_size)
        self.o_proj = linear(shape.heads * shape.head_size, shape.hidden)

    def split(self, x: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, [batch, heads, n, head size] each, rotated from position `first`."""
        q, k, v = (
            p(x).unflatten(-1, (-1, self.shape.head_size)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        shared = self.shape.heads // self.shape.kv_heads
        k, v = rotary(k, first).repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        return rotary(q, first), k, v

    def join(self, x: Tensor) -> Tensor:
        """[batch, heads, n, head size] -> [batch, n, hidden]."""
        return self.o_proj(x.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """The gated feed-forward block."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = linear(shape.hidden, shape.mlp)
        self.up_proj = linear(shape.hidden, shape.mlp)
        self.down_proj = linear(shape.mlp, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] -> [..., hidden]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.self_attn = Heads(shape, shape.hidden)
        self.mlp = FeedForward(shape)
        self.input_layernorm = RMSNorm(shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden)

    def forward(self, x: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """[batch, n, hidden] -> [batch, n, hidden], causal; after `past` only one position at a time."""
        q, k, v = self.self_attn.split(self.input_layernorm(x), first=0 if past is None else past[0].shape[2])
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        x = x + self.self_attn.join(F.scaled_dot_product_attention(q, k, v, is_causal=past is None))
        return x + self.mlp(self.post_attention_layernorm(x)), (k, v)


class Body(nn.Module):
    """Embedding, layers, last norm: what checkpoints call `model`."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden)


class Llama(nn.Module):
    """The target."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = linear(shape.hidden, shape.vocab)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** (0.5 * into_residual))

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits [batch, n, vocab], and the hidden state that enters each layer."""
        x = self.model.embed_tokens(tokens)
        entering = []
        for layer in self.model.layers:
            entering.append(x)
            x, _ = layer(x)
        return self.lm_head(self.model.norm(x)), entering

    @torch.no_grad()
    def continued(self, tokens: Tensor, length: int) -> Tensor:
        """`tokens` [batch, n] with the model's own greedy text behind, [batch, length]."""
        past: list[Past | None] = [None] * len(self.model.layers)
        unread = tokens
        while tokens.shape[1] < length:
            x = self.model.embed_tokens(unread)
            for number, layer in enumerate(self.model.layers):
                x, past[number] = layer(x, past[number])
            unread = self.lm_head(self.model.norm(x[:, -1:])).argmax(-1)
            tokens = torch.cat((tokens, unread), 1)
        return tokens
