# %% [markdown]
# # Choosing the number of clusters
#
# How many clusters are there? `path` compares several numbers on what is fitted already. In a
# federation nobody has to report anything again: the sum that the server holds is enough for every
# number. This script does it for one owner, for three hospitals, and after records were forgotten.

# %%
import numpy as np
from sklearn.datasets import load_wine

from fedforget import FederatedKMeans, KMeans

wine = load_wine()
ids = np.array([f"w-{row:03}" for row in range(len(wine.data))])

# %% [markdown]
# Four of the 13 measurements are enough here. The ranges are fixed beforehand and are public.

# %%
RANGES = {
    "alcohol": (10, 16),
    "flavanoids": (0, 6),
    "color_intensity": (0, 15),
    "proline": (200, 1800),
}
X = wine.data[:, [wine.feature_names.index(name) for name in RANGES]]
low, high = np.array(list(RANGES.values()), dtype=float).T
scaled = (X - low) / (high - low)

# %% [markdown]
# ## One owner
#
# Each line of the table is one number of clusters: the loss, by how much it is lower than in the
# line before, and whether restarts find the same clusters (1 is the same, 0 is chance). Below the
# table stands a suggestion with its reason.

# %%
owner = KMeans(n_clusters=3, n_init=10, random_state=7).fit(scaled, ids=ids)
path = owner.path(range(2, 8))
print(path)

losses = [row.loss for row in path.rows]
assert losses == sorted(losses, reverse=True)

# %% [markdown]
# The path has the model of each number. That of the fitted number is the fitted model itself, and
# the others are those of a fresh fit.

# %%
assert (path.model(3).cluster_centers == owner.cluster_centers_).all()
four = KMeans(n_clusters=4, n_init=10, random_state=7).fit(scaled, ids=ids)
assert (path.model(4).cluster_centers == four.cluster_centers_).all()

# %% [markdown]
# ## Three hospitals
#
# Here the rules of disclosure count, too: a number with which some cluster would have fewer than
# five records is shown in the table, but is never suggested.

# %%
hospital = np.array(["Aarhus", "Bologna", "Coimbra"])[np.arange(len(X)) % 3]
federation = FederatedKMeans(
    n_clusters=3,
    local_clusters=12,
    bounds=list(RANGES.values()),
    scale="box",
    step=0.01,
    min_cell=5,
    random_state=7,
).fit(X, clients=hospital, ids=ids)

shared = federation.path(range(2, 8))
print(shared)
number, reason = shared.suggested
assert number == 3, reason
assert shared.model(3).digest == federation.model_digest_

# %% [markdown]
# Clients report as many clusters as `local_clusters` says, whatever K is. With three hospitals and
# twelve local clusters each, the sum has up to 36 bins. A number of clusters near that gives a poor
# model: set `local_clusters` to at least twice the largest number that you want to compare.

# %% [markdown]
# ## After forgetting
#
# The path has no memory either. Ten records go, and the table is that of a fresh federation.

# %%
gone = np.arange(0, 100, 10)
federation.forget(ids[gone])
stay = np.setdiff1d(np.arange(len(X)), gone)
fresh = FederatedKMeans(**federation.get_params())
fresh.fit(X[stay], clients=hospital[stay], ids=ids[stay])

before, after = federation.path(range(2, 8)), fresh.path(range(2, 8))
assert [row.loss for row in before.rows] == [row.loss for row in after.rows]
assert all(before.model(k).digest == after.model(k).digest for k in range(2, 8))
print(f"{len(stay)} records are left; all six models are those of a fresh fit")
