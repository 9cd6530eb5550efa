# %% [markdown]
# # Cells of three laboratories
#
# Three laboratories cluster their cells. A donor withdraws, and all cells of this donor are
# forgotten. The cells are made up: counts of 60 genes, of which some mark a kind of cell. This
# script needs `anndata` (`pip install '.[anndata]'` in a checkout).

# %%
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

try:
    import anndata
    import pandas as pd
except ImportError as missing:
    print(f"skipped: {missing}; pip install '.[anndata]' in a checkout")
    sys.exit(0)

from fedforget import scverse

# Some releases of anndata cannot write the new texts of pandas 3, and use options that it dropped.
warnings.filterwarnings("ignore", "The '.*' option is deprecated")
pd.set_option("future.infer_string", False)

# %% [markdown]
# ## The cells
#
# Every kind of cell expresses ten genes more than the other kinds do. A donor gave cells to one
# laboratory.

# %%
rng = np.random.default_rng(0)
KINDS = np.array(["B cell", "T cell", "monocyte"])
LABORATORIES = np.array(["Lund", "Nantes", "Oxford"])
N_CELLS, N_GENES, N_DONORS = 600, 60, 12


def counts_of(kinds):
    """Counts of cells of these kinds, from a law that is the same for everybody."""
    mean = np.full((len(KINDS), N_GENES), 2.0)
    for number in range(len(KINDS)):
        mean[number, 10 * number : 10 * number + 10] = 15.0
    return rng.poisson(mean[kinds] * rng.gamma(5, 0.2, (len(kinds), 1)) + 0.1)


kinds = rng.integers(len(KINDS), size=N_CELLS)
donor = rng.integers(N_DONORS, size=N_CELLS)
names = [f"cell-{row:03}" for row in range(N_CELLS)]
cells = anndata.AnnData(
    X=counts_of(kinds).astype(np.float64),
    obs=pd.DataFrame(
        {
            "kind": KINDS[kinds],
            "donor": np.char.add("donor-", donor.astype(str)),
            "laboratory": LABORATORIES[donor % len(LABORATORIES)],
        },
        index=names,
    ),
)
print(cells)

# %% [markdown]
# ## A representation that keeps no trace
#
# PCA of these cells would depend on every one of them: after forgetting, the axes would still
# remember the donor. So the axes come from elsewhere, from a public reference. Each cell is then
# projected by itself. The normalisation, too, looks at one cell at a time.


# %%
def normalised(counts):
    """Ten thousand counts per cell, and their logarithm."""
    return np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4)


reference = normalised(counts_of(rng.integers(len(KINDS), size=1000)))
centre = reference.mean(axis=0)
axes = np.linalg.svd(reference - centre, full_matrices=False)[2][:5].T

cells.obsm["X_reference"] = (normalised(cells.X) - centre) @ axes

# %% [markdown]
# ## Cluster
#
# Results go where the scverse expects them: labels into `obs`, everything else into `uns`.

# %%
PUBLIC = {"bounds": (-40, 40), "step": 0.005, "min_cell": 5}
scverse.kmeans(cells, 3, use_rep="X_reference", client_key="laboratory", local_clusters=6, **PUBLIC)
table = pd.crosstab(cells.obs["kind"].to_numpy(), cells.obs["fedforget"].to_numpy())
print(table)
agreeing = table.to_numpy().max(axis=1).sum()
print(f"{agreeing} of {cells.n_obs} cells are with the others of their kind")
assert agreeing > 0.9 * cells.n_obs

# %% [markdown]
# ## A donor withdraws
#
# The object may come from a file: parameters and results are in it. `forget` takes the cells out
# of the object and out of the clusters. A fresh fit on the cells that are left gives the same
# digest.

# %%
folder = Path(tempfile.mkdtemp(prefix="fedforget-"))
cells.write_h5ad(folder / "cells.h5ad")
later = anndata.read_h5ad(folder / "cells.h5ad")

withdrawn = later.obs_names[later.obs["donor"] == "donor-4"]
scverse.forget(later, withdrawn)
print(f"{len(withdrawn)} cells of donor-4 are forgotten, {later.n_obs} are left")

fresh = cells[cells.obs["donor"] != "donor-4"].copy()
scverse.kmeans(fresh, 3, use_rep="X_reference", client_key="laboratory", local_clusters=6, **PUBLIC)
assert later.uns["fedforget"]["model_digest"] == fresh.uns["fedforget"]["model_digest"]
assert (later.obs["fedforget"].to_numpy() == fresh.obs["fedforget"].to_numpy()).all()

# %% [markdown]
# The old file still has the donor's cells. Write the new object over it.

# %%
later.write_h5ad(folder / "cells.h5ad")
assert not anndata.read_h5ad(folder / "cells.h5ad").obs_names.isin(withdrawn).any()
print("the file has none of them")
