# %% [markdown]
# # Forget, and verify the receipt
#
# Three hospitals keep their records in directories, as in real life. A patient asks to be
# forgotten; the hospital hands out a receipt; a lawyer checks it, with and without the salt. A
# forged receipt is refused. Everything happens on the command line, called from Python.

# %%
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="fedforget-"))
TOWNS = ["aarhus", "bologna", "coimbra"]


def fedforget(*words, fails=False):
    """Run one command in the folder, and give back what it prints as JSON."""
    command = [sys.executable, "-m", "fedforget", *map(str, words), "--json"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else {}


# %% [markdown]
# ## A federation

# %%
fedforget(
    *("server", "init", "server", "--name", "heart study", "--clusters", 2),
    *("--feature", "age:0:120", "--feature", "pressure:60:260"),
)
for town in TOWNS:
    fedforget("client", "init", town, "--name", town.title())
enrolments = [word for town in TOWNS for word in ("--client", f"{town}/enrolment.json")]
fedforget("server", "enrol", "server", *enrolments)

for town in TOWNS:
    with open(FOLDER / f"{town}.csv", "w") as file:
        print("patient,age,pressure", file=file)
        for number in range(60):
            age, pressure = random.uniform(20, 90), random.uniform(90, 200)
            print(f"{town}-{number},{age:.1f},{pressure:.1f}", file=file)
    given = ("--federation", "server/federation.toml", "--epoch", "server/epoch-1.json")
    fedforget("client", "join", town, *given, "--yes")
    fedforget("client", "import", town, f"{town}.csv", "--id", "patient")

first = fedforget("round", "server", *TOWNS)
print("round", first["round"], "committed; model", first["model"][:16])

# %% [markdown]
# ## The request

# %%
asked = fedforget("client", "forget", "bologna", "--ids", "bologna-17", "--yes")
second = fedforget("round", "server", *TOWNS)
print("round", second["round"], "committed; model", second["model"][:16])

written = fedforget("client", "receipts", "bologna", "-o", "receipts")
[receipt] = (FOLDER / "receipts").glob("receipt-*.json")
print("receipt:", receipt.name)

# %% [markdown]
# ## The lawyer
#
# The receipt alone says that one record was erased. With the salt it also says whose.

# %%
answer = fedforget("verify", receipt, "--federation", "server/federation.toml")
for name in ("valid", "client", "federation", "round", "signed_by", "records", "requested"):
    print(f"{name:10} {answer[name]}")

salt = asked["salt"]
(FOLDER / "ids.txt").write_text("bologna-17\nbologna-18\n")
opened = fedforget(
    *("verify", receipt, "--federation", "server/federation.toml"),
    *("--ids-file", "ids.txt", "--salt", salt),
)
print("covers:", opened["covered"])
assert opened["covered"] == ["bologna-17"]

# %% [markdown]
# ## A forgery
#
# Somebody changes the number of the round in the receipt.

# %%
forged = json.loads(receipt.read_text())
forged["round"] += 1
(FOLDER / "forged.json").write_text(json.dumps(forged))
refused = fedforget("verify", "forged.json", "--federation", "server/federation.toml", fails=True)
assert not refused["valid"]
print("the forged receipt is refused:", refused["reason"])

# %% [markdown]
# ## The auditor
#
# On Bologna's machine, the stored state is compared with a fresh fit on the records that are
# there.

# %%
audit = fedforget("client", "audit", "bologna")
print("records:", audit["records"])
assert audit["records"] == 59
