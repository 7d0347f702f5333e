"""A linear probe in closed form, trained on some pairs of passages and tested on others.

Ridge regression on the labels -1 and 1 over standardised features: for two classes of equal size its direction is that
of linear discriminant analysis with a covariance that is shrunk towards none. One fixed penalty, nothing is tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch

PENALTY = 0.1
"""Added to the diagonal of the features' correlation matrix (1 everywhere)."""
_NOTHING = 1e-6
"""A prediction nearer to zero than this, where the labels are -1 and 1, is a guess: rounding would decide it."""
FOLDS = 5
LEAST_PAIRS = 4


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Tokens of some pairs in one layer."""

    features: Sequence[torch.Tensor]
    """For each pair [tokens, hidden]."""
    user: Sequence[torch.Tensor]
    """For each pair [tokens], whether the token is the user's."""


def folds_of(count: int, seed: int) -> list[int]:
    """Which part of the pairs each is in; a pair's tokens are always together."""
    order = Random(f"rolewise-probe:{seed}").sample(range(count), count)
    parts = min(FOLDS, count)
    folds = [0] * count
    for place, number in enumerate(order):
        folds[number] = place % parts
    return folds


@torch.inference_mode()
def accuracies(examples: Examples, folds: Sequence[int]) -> list[float]:
    """The share of each pair's tokens whose role is told rightly by a probe that was trained without that part."""
    features = torch.cat(list(examples.features)).float()
    labels = torch.cat([one.float() * 2 - 1 for one in examples.user])
    part = torch.cat([torch.full((len(one),), fold) for one, fold in zip(examples.user, folds, strict=True)])
    # For numbers of like size; each training standardises anew, from its own tokens.
    mean, spread = features.mean(0), features.std(0)
    features = (features - mean) / torch.maximum(spread, 1e-6 * mean.abs() + 1e-30)
    moments = [_Moments.of(features[part == fold], labels[part == fold]) for fold in range(max(folds) + 1)]
    right = torch.zeros(len(labels))
    for fold, held_out in enumerate(moments):
        mean, weights, bias = _ridge(_Moments.sum([one for one in moments if one is not held_out]))
        tested = part == fold
        told = ((features[tested] - mean) @ weights + bias) * labels[tested]
        right[tested] = torch.where(told.abs() < _NOTHING, 0.5, (told > 0).float())
    return [float(one.mean()) for one in right.split([len(one) for one in examples.user])]


def offsets(examples: Examples) -> list[float]:
    """The mean difference between the roles, over the root mean square length of the hidden states.

    The vector is the mean over all pairs. Each pair's part of its length is returned, so that their mean is the whole.
    """
    differences, squares = list[torch.Tensor](), list[torch.Tensor]()
    for features, user in zip(examples.features, examples.user, strict=True):
        exact = features.double()
        differences.append(exact[user].mean(0) - exact[~user].mean(0))
        squares.append(exact.square().sum(1).mean())
    stacked = torch.stack(differences)
    mean = stacked.mean(0)
    length = mean.norm()
    if not length > 0:
        return [0.0] * len(differences)
    return ((stacked @ mean) / length / torch.stack(squares).mean().sqrt()).tolist()


@dataclass(frozen=True)
class _Moments:
    """Sums over tokens, from which a regression follows; those of a training set are sums of its parts'."""

    count: int
    features: torch.Tensor
    products: torch.Tensor
    labels: torch.Tensor
    labelled: torch.Tensor

    @classmethod
    def of(cls, features: torch.Tensor, labels: torch.Tensor) -> _Moments:
        return cls(len(labels), features.sum(0), features.T @ features, labels.sum(), features.T @ labels)

    @classmethod
    def sum(cls, parts: Sequence[_Moments]) -> _Moments:
        columns = ([getattr(part, name) for part in parts] for name in ("features", "products", "labels", "labelled"))
        return cls(sum(part.count for part in parts), *(torch.stack(column).sum(0) for column in columns))


def _ridge(train: _Moments) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The training mean, the weights for features from which it is taken, and the mean label."""
    n = train.count
    mean, bias = train.features / n, train.labels / n
    covariance = train.products / n - torch.outer(mean, mean)
    scale = covariance.diagonal().clamp_min(1e-6).sqrt()
    correlation = covariance / torch.outer(scale, scale)
    correlation.diagonal().add_(PENALTY)
    target = (train.labelled / n - mean * bias) / scale
    return mean, torch.linalg.solve(correlation, target) / scale, bias
