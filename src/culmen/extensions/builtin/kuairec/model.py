"""A recommender in the manner of FuXi-Linear: three channels of linear complexity, each with weights of its own.

Every block mixes a sequence by what was viewed (retention), when (temporal) and where in the sequence (positional),
gates the three and passes them through a feed-forward network in two stages.
"""

import math

import torch
from torch import nn
from torch.nn.functional import normalize, silu, softplus

# EVOLVE-BLOCK-START
HOUR = 3600.0
PERIODS = (6 * HOUR, 24 * HOUR, 7 * 24 * HOUR)  # of the temporal channel
KERNEL = 16  # size of a position's kernel
TEMPERATURE = 0.1
INITIAL = 0.02  # standard deviation of embeddings


def decayed(query, key, value, elapsed, chunk):
    """sum over j <= i of exp(elapsed_j - elapsed_i) (query_i . key_j) value_j, in time linear in the length.

    query, key (..., length, a), value (..., length, b), elapsed (..., length), never falling. Chunk by chunk: inside a
    chunk as a matrix, before it through a state of shape (..., a, b).
    """
    made, state, then = [], None, None
    for low in range(0, value.shape[-2], chunk):
        part = slice(low, low + chunk)
        q, k, v, e = query[..., part, :], key[..., part, :], value[..., part, :], elapsed[..., part]
        gap = (e[..., :, None] - e[..., None, :]).clamp(min=0)
        out = ((q @ k.transpose(-1, -2)) * torch.exp(-gap)).tril() @ v
        if state is not None:
            out = out + torch.exp(then - e)[..., None] * (q @ state)
            state = torch.exp(then - e[..., -1:])[..., None] * state
        fresh = (k * torch.exp(e - e[..., -1:])[..., None]).transpose(-1, -2) @ v
        state, then = fresh if state is None else state + fresh, e[..., -1:]
        made.append(out)
    return torch.cat(made, dim=-2)


class Retention(nn.Module):
    """What was viewed: queries and keys of the videos, older ones fade with a rate of each head's own."""

    def __init__(self, width, heads, chunk):
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.rate = nn.Parameter(torch.linspace(-4.0, -1.0, heads))

    def forward(self, x, steps):
        query, key, value = silu(self.project(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        elapsed = softplus(self.rate)[:, None] * steps
        return decayed(query, key, value, elapsed, self.chunk).transpose(1, 2).flatten(2)


class Temporal(nn.Module):
    """When: queries and keys are phases of the clock alone, a head for each period; older views fade with time."""

    def __init__(self, width, chunk):
        super().__init__()
        self.chunk = chunk
        self.project = nn.Linear(width, len(PERIODS) * (width // len(PERIODS)), bias=False)
        self.back = nn.Linear(len(PERIODS) * (width // len(PERIODS)), width, bias=False)
        self.rate = nn.Parameter(torch.zeros(len(PERIODS)))

    def forward(self, x, seconds):
        periods = torch.tensor(PERIODS, dtype=seconds.dtype, device=seconds.device)[:, None]
        phase = 2 * math.pi * torch.remainder(seconds[:, None, :], periods) / periods
        wave = torch.stack([torch.cos(phase), torch.sin(phase)], dim=-1).to(x.dtype)
        since = (seconds - seconds[:, :1]).clamp(min=0)[:, None, :] / periods
        elapsed = softplus(self.rate)[:, None] * since.to(x.dtype)
        value = self.project(x).unflatten(-1, (len(PERIODS), -1)).transpose(1, 2)
        return self.back(decayed(wave, wave, value, elapsed, self.chunk).transpose(1, 2).flatten(2))


class Positional(nn.Module):
    """Where: weights are products of learnt kernels of the two positions."""

    def __init__(self, width, length, chunk):
        super().__init__()
        self.chunk = chunk
        angle = torch.arange(length)[:, None] / length ** (torch.arange(KERNEL // 2) / (KERNEL // 2))
        self.kernel = nn.Parameter(torch.cat([torch.cos(angle), torch.sin(angle)], dim=1) / math.sqrt(KERNEL))
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, x):
        kernel = self.kernel[: x.shape[1]]
        still = torch.zeros(x.shape[1], device=x.device)
        return decayed(kernel, kernel, self.project(x), still, self.chunk)


class Block(nn.Module):
    """Three channels, a gate, and a feed-forward network in two stages."""

    def __init__(self, settings):
        super().__init__()
        width, chunk = settings["width"], settings["chunk"]
        self.before = nn.LayerNorm(width)
        channels = Retention(width, settings["heads"], chunk), Temporal(width, chunk)
        self.channels = nn.ModuleList([*channels, Positional(width, settings["history"], chunk)])
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.channels)
        self.gate = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(3 * width, width)
        self.between = nn.LayerNorm(width)
        self.open, self.up, self.down = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.drop = nn.Dropout(settings["dropout"])

    def forward(self, x, seconds, steps):
        y = self.before(x)
        retention, temporal, positional = self.channels
        mixed = [retention(y, steps), temporal(y, seconds), positional(y)]
        mixed = torch.cat([norm(each) for norm, each in zip(self.norms, mixed)], dim=-1)
        x = x + self.merge(self.drop(mixed * silu(self.gate(y))))
        y = self.drop(self.between(x))
        return x + self.down(silu(self.open(y)) * self.up(y))


class Recommender(nn.Module):
    """Histories to states, videos to vectors; a video's score is the product of the two."""

    def __init__(self, catalogue, settings):
        super().__init__()
        self.catalogue = catalogue
        self.embedding = nn.Embedding(catalogue, settings["width"])
        self.place = nn.Parameter(INITIAL * torch.randn(settings["history"], settings["width"]))
        self.drop = nn.Dropout(settings["dropout"])
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings["blocks"]))
        nn.init.normal_(self.embedding.weight, std=INITIAL)

    def forward(self, videos, seconds, present):
        """States (users, length, width) of videos (long), seconds (double), present (bool), all (users, length)."""
        steps = torch.arange(videos.shape[1], device=videos.device, dtype=torch.float32)
        x = self.embedding(videos) * math.sqrt(self.embedding.embedding_dim) + self.place[: videos.shape[1]]
        x = self.drop(x) * present[:, :, None]
        for block in self.blocks:
            x = block(x, seconds, steps)
        return normalize(x, dim=-1) / TEMPERATURE

    def candidates(self, videos):
        """Vectors (..., width) of video numbers of any shape."""
        return normalize(self.embedding(videos), dim=-1)
# EVOLVE-BLOCK-END
