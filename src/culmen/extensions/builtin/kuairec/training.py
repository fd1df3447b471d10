"""Fixed: how a model of model.py is trained, and how it scores the catalogue. In this part nothing may be changed.

Sampled softmax: at every position the video that came next, against `negatives` others drawn evenly for each user.
"""

import numpy as np
import torch
from model import Recommender
from torch.nn.functional import cross_entropy

STATE = {}


def fit(videos, seconds, offsets, catalogue, settings):
    """Train on all histories: user u viewed videos[offsets[u]:offsets[u + 1]] at those seconds. Losses by epoch."""
    torch.manual_seed(settings["seed"])
    device = settings["device"]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Recommender(catalogue, settings).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings["rate"])
    STATE.update(model=model, device=device, length=settings["history"])
    pieces = batches(videos, seconds, offsets, settings["history"], device)
    users, losses = len(offsets) - 1, []
    for _ in range(settings["epochs"]):
        model.train()
        total = 0.0
        for chosen in torch.randperm(users).split(settings["batch"]):
            some = (each[chosen.to(device)] for each in pieces)
            loss = sampled_softmax(model, *some, catalogue, settings["negatives"])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            total += loss.item() * len(chosen)
        losses.append(total / users)
    return losses


def sampled_softmax(model, videos, seconds, present, catalogue, negatives):
    """Mean over positions of -log softmax of the next video among itself and the sampled ones."""
    states = model(videos[:, :-1], seconds[:, :-1], present[:, :-1])
    wanted, counted = videos[:, 1:], present[:, 1:]
    others = torch.randint(catalogue, (len(videos), negatives), device=videos.device)
    right = (states * model.candidates(wanted)).sum(dim=-1, keepdim=True)
    wrong = states @ model.candidates(others).transpose(1, 2)
    wrong = wrong.masked_fill(wanted[:, :, None] == others[:, None, :], -1e4)
    logits = torch.cat([right, wrong], dim=-1)[counted]
    return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device))


def rank(videos, seconds, offsets):
    """Scores of the whole catalogue after each history, shape (users, catalogue), float32."""
    model, device = STATE["model"], STATE["device"]
    model.eval()
    with torch.no_grad():
        videos, seconds, present = batches(videos, seconds, offsets, STATE["length"], device)
        states = model(videos, seconds, present)
        last = present.sum(dim=1) - 1
        final = states[torch.arange(len(last), device=device), last]
        every = model.candidates(torch.arange(model.catalogue, device=device))
        return (final @ every.T).float().cpu().numpy()


def batches(videos, seconds, offsets, length, device):
    """Histories as three tensors of shape (users, length), filled up at the end: videos, seconds, present."""
    lengths = np.minimum(np.diff(offsets), length)
    present = np.arange(length) < lengths[:, None]
    rows = np.minimum(offsets[1:, None] - lengths[:, None] + np.arange(length), offsets[1:, None] - 1)
    made = [np.where(present, videos[rows], 0), seconds[rows], present]  # after the end the clock stands still
    return [torch.from_numpy(each).to(device) for each in made]
