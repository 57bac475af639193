"""Embeddings of windows: what a window looks like once its noise is gone. PCA and a small auto-encoder, one interface.

Rows are windows of one metric as differences to the peers (zero: like the peers), columns their samples. Both are
scikit-learn estimators; `transform` gives the embedding, `denoise` the window that the embedding gives back, and
`score_samples` minus the squared distance of the embedding to the healthy ones' centre in units of their spread.
Minder (NSDI '25) uses a recurrent variational auto-encoder here; these are plain substitutes, chosen by measurement.
Reconstruction error is not used to judge: it finds almost nothing (bench/machines.md).
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

Array = np.ndarray
LEAST_SPREAD = 1e-9


class WindowEmbedding(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both embeddings share; subclasses learn in `_learn` and map in `_embed` and `_restore`."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from healthy windows: X is windows × samples, without missing values."""
        windows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.mean_ = windows.mean(axis=0)
        self._learn(windows - self.mean_)
        embedded = self._embed(windows - self.mean_)
        self.centre_ = embedded.mean(axis=0)
        self.spread_ = np.maximum(embedded.std(axis=0), LEAST_SPREAD)
        return self

    def transform(self, X: Any) -> Array:
        """Embeddings: windows × components."""
        check_is_fitted(self, "mean_")
        return self._embed(validate_data(self, X, dtype=np.float64, reset=False) - self.mean_)

    def denoise(self, X: Any) -> Array:
        """Windows as their embedding gives them back: windows × samples."""
        return self._restore(self.transform(X)) + self.mean_

    def score_samples(self, X: Any) -> Array:
        """Minus the mean squared distance to the healthy centre: the higher, the more like healthy windows."""
        away = (self.transform(X) - self.centre_) / self.spread_
        return -np.mean(away**2, axis=1)

    def _learn(self, windows: Array) -> None:
        raise NotImplementedError

    def _embed(self, windows: Array) -> Array:
        raise NotImplementedError

    def _restore(self, embedded: Array) -> Array:
        raise NotImplementedError


class PcaEmbedding(WindowEmbedding):
    """The first principal directions of healthy windows. Signs are fixed, so equal data give equal bytes."""

    def __init__(self, n_components: int = 3) -> None:
        self.n_components = n_components

    def _learn(self, windows: Array) -> None:
        _, _, directions = np.linalg.svd(windows, full_matrices=False)
        directions = directions[: self.n_components]
        largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
        self.components_ = directions * np.where(largest < 0, -1.0, 1.0)

    def _embed(self, windows: Array) -> Array:
        # Row by row in a fixed order, so that a window's embedding does not depend on its neighbours.
        return np.einsum("ij,kj->ik", windows, self.components_)

    def _restore(self, embedded: Array) -> Array:
        return np.einsum("ik,kj->ij", embedded, self.components_)

    def level_weights(self) -> Array:
        """The filter that turns a window's samples into the mean of its denoised window; its weights sum to one."""
        check_is_fitted(self, "components_")
        weights = (self.components_.T @ self.components_).mean(axis=0)
        total = weights.sum()
        return weights / total if total > 0.5 else np.full(len(weights), 1 / len(weights))


class MlpEmbedding(WindowEmbedding):
    """A small auto-encoder: one hidden layer that is narrower than the window."""

    def __init__(self, n_hidden: int = 4, max_iter: int = 200, random_state: int = 0) -> None:
        self.n_hidden = n_hidden
        self.max_iter = max_iter
        self.random_state = random_state

    def _learn(self, windows: Array) -> None:
        self.scale_ = max(float(windows.std()), LEAST_SPREAD)
        network = MLPRegressor(
            hidden_layer_sizes=(self.n_hidden,), activation="tanh", max_iter=self.max_iter, random_state=self.random_state
        )
        scaled = windows / self.scale_
        with warnings.catch_warnings():
            # Few iterations are meant: the aim is a smooth map, not the last digit of the loss.
            warnings.simplefilter("ignore", ConvergenceWarning)
            network.fit(scaled, scaled[:, 0] if scaled.shape[1] == 1 else scaled)
        self.n_iter_ = network.n_iter_
        self.weights_ = [w.copy() for w in network.coefs_]
        self.biases_ = [b.copy() for b in network.intercepts_]

    def _embed(self, windows: Array) -> Array:
        return np.tanh(np.einsum("ij,jk->ik", windows / self.scale_, self.weights_[0]) + self.biases_[0])

    def _restore(self, embedded: Array) -> Array:
        return (np.einsum("ij,jk->ik", embedded, self.weights_[1]) + self.biases_[1]) * self.scale_
