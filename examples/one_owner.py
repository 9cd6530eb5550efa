# %% [markdown]
# # One owner, real data
#
# A clinic clusters the measurements of 178 wines (scikit-learn's `load_wine`; take them for
# patients). Some records must go. We forget them one by one and in a batch, and check each time
# that the model is the one of a fresh fit.

# %%
import numpy as np
from sklearn.datasets import load_wine

from fedforget import KMeans

wine = load_wine()
X = wine.data
ids = np.array([f"w-{row:03}" for row in range(len(X))])

# %% [markdown]
# The features have different units. We scale them by ranges that we fix beforehand, and that say
# nothing about a single record: the range is public knowledge, the data are not.

# %%
RANGES = {
    "alcohol": (10, 16),
    "malic_acid": (0, 6),
    "ash": (1, 4),
    "alcalinity_of_ash": (10, 30),
    "magnesium": (70, 170),
    "total_phenols": (0, 4),
    "flavanoids": (0, 6),
    "nonflavanoid_phenols": (0, 1),
    "proanthocyanins": (0, 4),
    "color_intensity": (1, 14),
    "hue": (0, 2),
    "od280/od315_of_diluted_wines": (1, 4),
    "proline": (200, 1800),
}
low, high = np.array([RANGES[name] for name in wine.feature_names]).T
scaled = (X - low) / (high - low)


# %%
def fresh_fit(rows):
    """A fit on some of the records."""
    return KMeans(n_clusters=3, n_init=10, random_state=7).fit(scaled[rows], ids=ids[rows])


everybody = np.arange(len(X))
model = fresh_fit(everybody)
print(f"{len(X)} records, inertia {model.inertia_:.3f}, sizes {model.cluster_sizes_}")

# %% [markdown]
# ## Three requests, one after the other

# %%
for row in (12, 99, 150):
    print(model.forget(ids[row]))

stay = np.setdiff1d(everybody, [12, 99, 150])
again = fresh_fit(stay)
assert (model.cluster_centers_ == again.cluster_centers_).all()
assert (model.labels_ == again.labels_).all()
assert model.inertia_ == again.inertia_

# %% [markdown]
# ## A batch, and one who comes back
#
# Half of the records go at once. Then the first one returns.

# %%
gone = stay[::2]
report = model.forget(ids[gone])
print(report)
stay = np.setdiff1d(stay, gone)
assert (model.cluster_centers_ == fresh_fit(stay).cluster_centers_).all()

model.learn(scaled[[12]], ids=[ids[12]])
assert (model.cluster_centers_ == fresh_fit([*stay, 12]).cluster_centers_).all()
print(f"{len(model.ids_)} records are left, and nothing of the others")
