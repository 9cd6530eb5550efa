# %% [markdown]
# # Five hospitals
#
# 569 patients of the Wisconsin breast cancer study are spread unevenly over five hospitals, which
# cluster together. Patients are forgotten, a hospital leaves, new patients come. All of it runs
# in one process; the sum of the hospitals' reports goes through the whole protocol with masks
# (`aggregation="secure"`).

# %%
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import adjusted_rand_score

from fedforget import FederatedKMeans

study = load_breast_cancer()
features = ["mean radius", "mean texture", "mean smoothness", "mean concavity"]
X = study.data[:, [list(study.feature_names).index(name) for name in features]]
patients = np.array([f"p-{row}" for row in range(len(X))])
towns = np.array(["Aarhus", "Bologna", "Coimbra", "Dresden", "Evora"])
hospital = np.random.default_rng(0).choice(towns, len(X), p=[0.4, 0.3, 0.15, 0.1, 0.05])
for town in towns:
    print(f"{town:8} {np.count_nonzero(hospital == town)} patients")

# %% [markdown]
# ## What is public
#
# Bounds come from what these measurements can be. The rules keep small groups out of every
# report: no cluster of fewer than five patients, and sizes in steps of five.

# %%
BOUNDS = [(0, 40), (0, 50), (0, 0.3), (0, 0.6)]


def federation(aggregation="plain"):
    return FederatedKMeans(
        n_clusters=2,
        local_clusters=4,
        bounds=BOUNDS,
        scale="box",
        step=0.01,
        min_cell=5,
        count_step=5,
        aggregation=aggregation,
        random_state=7,
    )


model = federation("secure").fit(X, clients=hospital, ids=patients)
agreement = adjusted_rand_score(study.target, model.labels_)
print(f"sizes {np.bincount(model.labels_)}; agreement with the diagnosis {agreement:.2f}")


# %% [markdown]
# ## Forget, leave, learn
#
# After each step a fresh federation is fitted on the records that are left, in the clear. Its
# digest must be that of the model.


# %%
def check(rows):
    rows = np.asarray(rows)
    fresh = federation().fit(X[rows], clients=hospital[rows], ids=patients[rows])
    assert fresh.model_digest_ == model.model_digest_
    print(f"  {len(rows)} patients left; the model is that of a fresh fit")


here = np.arange(len(X))

print(model.forget(["p-17", "p-204", "p-399"]))
here = np.setdiff1d(here, [17, 204, 399])
check(here)

print(model.forget_clients(["Evora"]))
left = here[hospital[here] == "Evora"]
here = np.setdiff1d(here, left)
check(here)

new = left[:10]  # ten of its patients go to Aarhus
hospital[new] = "Aarhus"
print(model.learn(X[new], clients=hospital[new], ids=patients[new]))
here = np.concatenate([here, new])
check(here)
