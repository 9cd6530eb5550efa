"""What a sum and published models say of a removed record: an attack that anybody can run.

Three parties are played.  The *server* sees the change of the sum, q' - q.  An *outsider* sees two
published models, with their centres and sizes.  A *member* sees those, too; its own records are in
both models and drop out of every difference, so it guesses as the outsider does.

A cluster whose mean moves from y to y' when one of its s records goes had that record at
y + (s - 1)(y - y'), up to the rounding of the two means: this is the guess.  Where the counts tell
that one record went, what all bins lost together is tried first: it is right, up to rounding, also
where seeds were drawn again.  Where a count falls and no mean moves, the guess is the mean.
Nothing else is tried: no knowledge of other records or of a person, no model of how records are
distributed, no change that is watched over many rounds.

Beside this attack stands a plain one: the change is *added up* as if it were one record, and a
change that does not add up to a loss is not guessed at all.  It shows what the difference says by
itself, without the choices above.

A guess is *near* within 1 % of the range in every feature.  Many records can be near one place:
somebody who never looks at a change and always names the fullest place may be near more often than
any of these attacks.  So the bench also says how often a near guess *singles out*: when fewer than
five of all records are near it.  And it says what had shown when a guess was near.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.bench.datasets import Dataset
from fedforget.clustering.disclosure import NO_RULES, ReportRules
from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.losses import nearest_loss
from fedforget.configuration import Configuration, Representatives
from fedforget.estimators.parameters import root_secret
from fedforget.runtime.local import LocalFederation, SimulatedClient

NEAR = 0.01
"""A guess within this part of the range, in every feature, counts as a recovery."""
CROWD = 5
"""A guess with so many records near it, the right one among them, singles nobody out."""
BATCH = 20

_DRAWS = 16
"""Guesses at random for each record, to know how often they are near."""
_OUTSIDE = 0.05
"""A guess that is so far outside the box cannot be right."""

_CANDIDATES = 512
"""So many of the fullest bins are tried as the fullest place."""

OnProgress = Callable[[str, int, int], None]

NOTHING = "nothing"
COUNT = "a count fell, and no mean moved"
MEAN = "one mean moved"
MORE = "more changed"


@dataclass(frozen=True)
class Setting:
    """One row of the table: rules, and whether centres are published on the grid of the bins."""

    name: str
    rules: ReportRules
    published: bool


SETTINGS = (
    Setting("no rules", NO_RULES, False),
    Setting("counts in steps of 5", ReportRules(count_step=5), False),
    Setting("cells of 5", ReportRules(min_cell=5), False),
    Setting("published on the grid", NO_RULES, True),
    Setting("5, 10, 5, the step (default)", ReportRules(5, 10, 5), True),
    Setting("10, 20, 5, the step", ReportRules(10, 20, 5), True),
    Setting("11, 22, 11, the step (cms)", ReportRules(11, 22, 11), True),
)


@dataclass(frozen=True)
class Recovery:
    """How often guesses came close, and how often guesses at random would.

    Attributes
    ----------
    tries : how many records were guessed.
    within_step, near : the share guessed within one step, and within 1 % of the range.
    informed : the share guessed that near from a change that showed; the other near guesses were
        made at random, where nothing did.
    added_up : the share that the whole change, added up as if it were one record, is that near to.
    singled_out : the share guessed that near while few others are.
    chance : the share that bins of the sum are near, drawn at random by what they count.
    """

    tries: int
    within_step: float
    near: float
    informed: float
    added_up: float
    singled_out: float
    chance: float


@dataclass(frozen=True)
class Shown:
    """What the change of the sum shows of some removals, and how well these are guessed.

    Attributes
    ----------
    what : nothing; a rounded count that passed a threshold; a mean that went to another bin; or
        more, as where seeds are drawn again or a cluster is dissolved.
    removals, near, singled_out : shares of all removals.
    """

    what: str
    removals: float
    near: float
    singled_out: float


@dataclass(frozen=True)
class AttackOutcome:
    """What the attacks on one setting gave.

    Attributes
    ----------
    server, batches, outsider : of single removals by q' - q, of batches of 20, and of single
        removals by two published models.
    shown : what showed in the single removals that the server guesses.
    fullest_place : the share of all records that are near the place where the sum counts most: the
        result of somebody who always guesses it, and looks at no change.
    smallest_cell : the fewest records behind anything reported, in all these removals; 0 if nothing
        ever was.
    loss : of the nearest published centres, divided by that without rules.
    """

    setting: Setting
    server: Recovery
    batches: Recovery
    outsider: Recovery
    shown: tuple[Shown, ...]
    fullest_place: float
    smallest_cell: int
    loss: float


@dataclass(frozen=True)
class Guesses:
    """What an attacker makes of one change.

    Attributes
    ----------
    best : (n, d) where the removed records may have been, the largest change first.
    added_up : (0 or 1, d) the whole change as if it were one record.
    shown : what kind of change it is.
    """

    best: Floats
    added_up: Floats
    shown: str

    @classmethod
    def of(cls, points: Floats, counts: Ints) -> Guesses:
        """From what changed: where, and by how much."""
        return cls(guesses_of(points, counts), added_up(points, counts), what_shows(counts))


def added_up(points: Floats, counts: Ints) -> Floats:
    """A change read as one record, or nothing where it is no loss.

    Examples
    --------
    >>> added_up(np.array([[0.5], [0.6]]), np.array([-4, 3])).round(6)
    array([[0.2]])
    >>> added_up(np.array([[0.3]]), np.array([-5])), added_up(np.array([[0.3]]), np.array([5]))
    (array([[0.3]]), array([], shape=(0, 1), dtype=float64))
    """
    total = int(counts.sum())
    if total >= 0:
        return np.empty((0, points.shape[1]))
    whole: Floats = (counts @ points / total)[np.newaxis]
    return whole


def guesses_of(points: Floats, counts: Ints) -> Floats:
    """Where removed records may have been, the largest change first.

    Parameters
    ----------
    points : (n, d) where something changed.
    counts : by how much.

    Examples
    --------
    A cluster of 4 records with mean 0.5 becomes one of 3 with mean 0.6: the record was at 0.2.

    >>> guesses_of(np.array([[0.5], [0.6]]), np.array([-4, 3])).round(6)
    array([[0.2]])
    """
    if counts.sum() == -1:
        whole = -(counts @ points)
        if _is_possible(whole):
            return np.clip(whole, 0.0, 1.0)[np.newaxis]
    lost, gained = np.flatnonzero(counts < 0), np.flatnonzero(counts > 0)
    lost = lost[np.argsort(counts[lost], kind="stable")]
    found = []
    for at in lost.tolist():
        guess = points[at]
        if len(gained):
            away = np.abs(points[gained] - points[at]).max(axis=1)
            to = int(gained[away.argmin()])
            moved = guess + counts[to] * (points[at] - points[to])
            guess = moved if _is_possible(moved) else guess
        found.append(np.clip(guess, 0.0, 1.0))
    return np.array(found).reshape(-1, points.shape[1])


def what_shows(counts: Ints) -> str:
    """What kind of change this is.

    >>> what_shows(np.array([-5])), what_shows(np.array([10, -10]))
    ('a count fell, and no mean moved', 'one mean moved')
    """
    lost, gained = int((counts < 0).sum()), int((counts > 0).sum())
    kinds = {(0, 0): NOTHING, (1, 0): COUNT, (1, 1): MEAN}
    return kinds.get((lost, gained), MORE)


def _is_possible(guess: Floats) -> bool:
    return bool((guess >= -_OUTSIDE).all() and (guess <= 1.0 + _OUTSIDE).all())


def attack(
    data: Dataset,
    settings: Sequence[Setting] = SETTINGS,
    *,
    step: float = 0.01,
    local_clusters: int | None = None,
    representatives: Representatives = "means",
    singles: int | None = None,
    outsider_tries: int = 200,
    seed: int = 0,
    progress: OnProgress = lambda what, done, total: None,
) -> list[AttackOutcome]:
    """Attack a dataset under several settings.

    Parameters
    ----------
    singles : how many records are removed one by one; all if left out.
    local_clusters : 2 K if left out.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.X))
    chosen = order if singles is None else order[:singles]

    def target(setting: Setting) -> _Target:
        config = _configuration(data, setting, step, local_clusters, representatives, seed)
        return _Target(data, config, seed)

    plain_loss = target(Setting("", NO_RULES, False)).loss()
    alone = [np.array([row]) for row in chosen.tolist()]
    batches = [chosen[at : at + BATCH] for at in range(0, len(chosen) - BATCH + 1, BATCH)]
    found = []
    for setting in settings:
        # One that only clients change, and one that is changed as a whole.
        clients, whole = target(setting), target(setting)
        server = clients.recovery(alone, clients.by_sum, setting, progress)
        shown = clients.shown(len(alone))
        together = clients.recovery(batches, clients.by_sum, setting, progress)
        outsider = whole.recovery(alone[:outsider_tries], whole.by_models, setting, progress)
        loss = whole.loss() / plain_loss if plain_loss else 1.0
        place = whole.share_near_the_fullest_place()
        found.append(
            AttackOutcome(setting, server, together, outsider, shown, place, clients.smallest, loss)
        )
    return found


def _configuration(
    data: Dataset,
    setting: Setting,
    step: float,
    local_clusters: int | None,
    representatives: Representatives,
    seed: int,
) -> Configuration:
    bounds = np.tile([0.0, 1.0], (data.X.shape[1], 1))
    return Configuration(
        n_clusters=data.n_clusters,
        local_clusters=local_clusters or 2 * data.n_clusters,
        grid=Grid(bounds, step),
        representatives=representatives,
        lattice="grid",
        server_points="weighted",
        mode="exact",
        n_init=10,
        max_iter=300,
        tol=0.0,
        public_seed=root_secret(seed).derive("public seed"),
        rules=setting.rules,
        published_step=step if setting.published else None,
    )


class _Target:
    """A federation from which records are taken, and to which they come back."""

    def __init__(self, data: Dataset, config: Configuration, seed: int) -> None:
        self.data = data
        self.config = config
        self.federation = LocalFederation(config, root_secret(seed))
        self._learn(np.arange(len(data.X)))
        self.rng = np.random.default_rng(seed)
        self.smallest = 0
        self._kinds: dict[str, list[int]] = {}
        for client in self.federation.clients.values():
            self._look_at(client)

    def _learn(self, rows: Ints) -> None:
        to_clustered = self.config.grid.to_clustered
        self.federation.learn(self.data.X[rows], rows, self.data.clients[rows], to_clustered)

    def loss(self) -> float:
        """Of the nearest published centres; infinite if there are none."""
        centres = self.config.centres_of(self.federation.model)[0]
        return nearest_loss(self.data.X, centres) if len(centres) else math.inf

    def _look_at(self, client: SimulatedClient) -> None:
        sizes = self.config.cells_of(client.owner.clusters).sizes
        here = int(sizes[sizes > 0].min(initial=len(self.data.X)))
        if (sizes > 0).any():
            self.smallest = min(here, self.smallest or here)

    # -- what is seen --------------------------------------------------------------------------

    def by_sum(self, rows: Ints) -> Guesses:
        """The server's guesses, after these records were removed; they come back at once."""
        change = Histogram(self.config.grid.n_features)
        for name in np.unique(self.data.clients[rows]).tolist():
            client = self.federation.clients[name]
            change += self._without(client, rows[self.data.clients[rows] == name]) - client.reported
        return Guesses.of(self.config.grid.units_of_bins(change.points()), change.counts())

    def _without(self, client: SimulatedClient, ids: Ints) -> Histogram:
        """What a client reports without some of its records."""
        owner = client.owner
        if len(ids) == len(owner):
            return Histogram(self.config.grid.n_features)
        here = np.flatnonzero(np.isin(owner.records.ids, ids))
        values, names = owner.records.values[here].copy(), owner.records.ids[here].copy()
        arrival = owner.records.arrival[here].copy()
        owner.forget(here)
        reported = self.config.histogram_of(owner.clusters)
        self._look_at(client)
        owner.learn(values, names, arrival)
        return reported

    def by_models(self, rows: Ints) -> Guesses:
        """An outsider's guesses from the models published before and after."""
        before = self._published()
        federation = self.federation
        found = federation.find(rows)
        federation.forget(found)
        after = self._published()
        self._learn(rows)
        points = np.concatenate([before[0], after[0]])
        counts = np.concatenate([-before[1], after[1]])
        change: dict[tuple[float, ...], int] = {}
        for point, count in zip(map(tuple, points.tolist()), counts.tolist(), strict=True):
            change[point] = change.get(point, 0) + count
        changed = [point for point, count in change.items() if count]
        where = np.array(changed).reshape(-1, points.shape[1])
        return Guesses.of(where, np.array([change[one] for one in changed], dtype=np.int64))

    def _published(self) -> tuple[Floats, Ints]:
        """Centres and sizes of the published model."""
        federation = self.federation
        centres = self.config.centres_of(federation.model)[0]
        points, counts = federation.aggregate.points(), federation.aggregate.counts()
        if not len(centres):
            return centres.reshape(0, self.config.grid.n_features), np.empty(0, dtype=np.int64)
        labels = self.config.nearest_centres(points, federation.model)
        sizes = np.bincount(labels, counts, minlength=len(centres)).astype(np.int64)
        return centres, sizes

    # -- how good the guesses are --------------------------------------------------------------

    def recovery(
        self,
        removals: Sequence[Ints],
        guess: Callable[[Ints], Guesses],
        setting: Setting,
        progress: OnProgress,
    ) -> Recovery:
        """Guess after each removal.  As many guesses are allowed as records were removed."""
        in_step = near = informed = plainly = alone = lucky = tries = 0
        for number, rows in enumerate(removals):
            if number % 64 == 0:
                progress(setting.name, number, len(removals))
            guesses, blind = guess(rows), self._blind(len(rows))
            guessed = guesses.best[: len(rows)]
            n_informed = len(guessed)
            # Where nothing shows, a guess at random is as good as any.
            guessed = np.concatenate([guessed, blind[len(guessed) :]])
            others = self._blind(_DRAWS * len(rows)).reshape(_DRAWS, *guessed.shape)
            for row in rows.tolist():
                record = self.data.X[row]
                away = np.abs(guessed - record).max(axis=1)
                best = int(away.argmin())
                in_step += bool(away[best] <= self.config.grid.step)
                hit = bool(away[best] <= NEAR)
                single = hit and self._near_records(guessed[best]) < CROWD
                near, alone = near + hit, alone + single
                informed += hit and best < n_informed
                plainly += bool((np.abs(guesses.added_up - record) <= NEAR).all(axis=1).any())
                kind = self._kinds.setdefault(guesses.shown, [0, 0, 0])
                kind[:] = kind[0] + 1, kind[1] + hit, kind[2] + single
                lucky += int((np.abs(others - record).max(axis=2).min(axis=1) <= NEAR).sum())
                tries += 1
        share = 1.0 / max(tries, 1)
        return Recovery(
            tries,
            in_step * share,
            near * share,
            informed * share,
            plainly * share,
            alone * share,
            lucky * share / _DRAWS,
        )

    def _near_records(self, guess: Floats) -> int:
        """How many of all records a guess is near to."""
        return int((np.abs(self.data.X - guess).max(axis=1) <= NEAR).sum())

    def shown(self, tries: int) -> tuple[Shown, ...]:
        """What showed in all removals since this was asked last, the most frequent first."""
        kinds = sorted(self._kinds.items(), key=lambda item: (-item[1][0], item[0]))
        self._kinds = {}
        return tuple(Shown(what, *(count / max(tries, 1) for count in of)) for what, of in kinds)

    def share_near_the_fullest_place(self) -> float:
        """How often a guess is near that is always the bin around which the sum counts most."""
        aggregate = self.federation.aggregate
        if not len(aggregate):
            return 0.0
        points, counts = self.config.grid.units_of_bins(aggregate.points()), aggregate.counts()
        fullest = np.argsort(-counts, kind="stable")[:_CANDIDATES]
        around = [
            int(counts[np.abs(points - points[at]).max(axis=1) <= NEAR].sum()) for at in fullest
        ]
        place = points[fullest[int(np.argmax(around))]]
        return self._near_records(place) / len(self.data.X)

    def _blind(self, count: int) -> Floats:
        """Guesses at random: bins of the sum, by what they count."""
        aggregate = self.federation.aggregate
        if not len(aggregate):
            return self.rng.random((count, self.config.grid.n_features))
        weights = aggregate.counts() / aggregate.total
        chosen = self.rng.choice(len(weights), count, p=weights)
        return self.config.grid.units_of_bins(aggregate.points()[chosen])
