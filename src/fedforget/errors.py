"""The errors and warnings that callers may want to catch.

Each one also derives from the built-in exception that a scikit-learn user would expect.
"""

from __future__ import annotations


class FedforgetError(Exception):
    """Base of every error that this package defines."""


class UnknownIdError(FedforgetError, ValueError):
    """Ids or client names that the model does not hold."""


class DuplicateIdError(FedforgetError, ValueError):
    """Ids given twice, or already held by the model."""


class OutOfBoundsError(FedforgetError, ValueError):
    """A value outside the federation's public bounds."""


class LatticeOverflowError(FedforgetError, ValueError):
    """Integer sums that could leave 64 bits; refused before anything is computed."""


class CutOffError(FedforgetError, RuntimeError):
    """A model whose last change was interrupted; it is neither the old one nor the new one."""


class ModelFileError(FedforgetError, ValueError):
    """A saved model that cannot be read, or does not reproduce what it claims."""


class DataTraceWarning(UserWarning):
    """A public parameter was inferred from the data and keeps a trace of forgotten records."""


class KernelCacheWarning(UserWarning):
    """Compiled kernels cannot be kept on disk."""
