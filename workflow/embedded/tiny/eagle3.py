"""The EAGLE-3 draft: one layer that imitates the target from the target's own hidden states.

Parameter names and layout are those that SGLang loads (srt/models/llama_eagle3.py, one mid layer).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .llama import FeedForward, Heads, Llama, RMSNorm, Shape, linear


def captured_layers(layers: int) -> list[int]:
    """The layers whose incoming hidden states the draft reads: an early, a middle and a late one.

    SGLang captures each layer once, so three different ones are needed: four layers or more.
    """
    if layers < 4:
        raise ValueError(
            f"EAGLE-3 reads three different layers of its target, which needs 4 or more, not {layers}"
        )
    return [1, layers // 2, layers - 1]


class MidLayer(nn.Module):
    """The draft's only layer: it reads the next token's embedding beside the hidden state."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.self_attn = Heads(shape, 2 * shape.hidden)
        self.mlp = FeedForward(shape)
        self.hidden_norm = RMSNorm(shape.hidden)
        self.input_layernorm = RMSNorm(shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden)


class Draft(nn.Module):
    """The draft; embedding, last norm and head start as the target's."""

    def __init__(self, target: Llama):
        super().__init__()
        shape = target.shape
        self.shape = shape
        self.fc = linear(3 * shape.hidden, shape.hidden)
        self.midlayer = MidLayer(shape)
        self.norm = RMSNorm(shape.hidden)
        self.lm_head = linear(shape.hidden, shape.vocab)
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
        self.norm.load_state_dict(target.model.norm.state_dict())
        self.lm_head.load_state_dict(target.lm_head.state_dict())
        self.embed_tokens.requires_grad_(False)

    def forward(self, tokens: Tensor, captured: Tensor, depths: int) -> list[Tensor]:
        """Logits [batch, n, vocab] of the guesses at each depth, as a server would draft them.

        `tokens` [batch, n + depths] are the tokens after position 0, 1, ...; `captured` [batch, n, 3 hidden]
        are the target's states at positions 0, 1, .... At depth 0 the draft sees the target's states; at
        depth d its own output of depth d - 1 stands in for them (EAGLE-3's "training-time test").
        """
        n = captured.shape[1]
        hidden = self.fc(captured)
        seen: list[tuple[Tensor, Tensor]] = []
        guesses = []
        for depth in range(depths):
            embedded = self.embed_tokens(tokens[:, depth : depth + n])
            hidden = self._layer(embedded, hidden, seen, depth)
            guesses.append(self.lm_head(self.norm(hidden)))
        return guesses

    def _layer(
        self, embedded: Tensor, hidden: Tensor, seen: list[tuple[Tensor, Tensor]], depth: int
    ) -> Tensor:
        """One pass. A position sees depth 0 of all positions up to it, and of later depths its own column."""
        layer = self.midlayer
        inputs = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(hidden)), -1)
        q, k, v = layer.self_attn.split(inputs, first=depth)
        seen.append((k, v))
        n, first_values = q.shape[-2], seen[0][1]
        future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
        logits = (q @ seen[0][0].transpose(-1, -2)).masked_fill(future, float("-inf"))
        own = [(q * key).sum(-1, keepdim=True) for key, _ in seen[1:]]
        weights = (torch.cat([logits, *own], -1) / self.shape.head_size**0.5).softmax(-1)
        mixed = weights[..., :n] @ first_values
        for column, (_, value) in enumerate(seen[1:], start=n):
            mixed = mixed + weights[..., column : column + 1] * value
        hidden = hidden + layer.self_attn.join(mixed)
        return hidden + layer.mlp(layer.post_attention_layernorm(hidden))
