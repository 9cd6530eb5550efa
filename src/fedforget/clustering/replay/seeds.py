"""Whether the seeds of a restart still win their steps of the race."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.clocks import draw, exponential, uniform
from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.race import SCREEN
from fedforget.clustering.replay.arithmetic import locate
from fedforget.clustering.replay.state import AFTER, BEFORE, SLOT
from fedforget.compilation import helper


@helper
def winners_stand(points, changed, restart, seeds, scratch):
    """Whether every seed still wins its step.  OUT: seeds (scores and runners-up), scratch.

    Winners come first: the others have to be compared with the winners' new scores.
    """
    n_seeds = seeds.shape[0]
    for winners in (True, False):
        for c in range(changed.shape[0]):
            slot, before, after = changed[c, SLOT], changed[c, BEFORE], changed[c, AFTER]
            won = -1
            for step in range(n_seeds):
                if seeds[step].slot == slot:
                    won = step
            if (won >= 0) != winners or (won < 0 and after <= before):
                continue
            if after == 0:
                return False
            locate(points, slot, scratch.place)
            d2 = 1.0
            weight = np.float64(after)
            for step in range(n_seeds):
                seed = seeds[step]
                counter = (np.uint64(restart) << np.uint64(32)) + np.uint64(step)
                u = uniform(draw(points.keys[slot, 0], points.keys[slot, 1], counter))
                rate = weight * d2
                if step == won:
                    score = exponential(u) / rate
                    if not score < seed.runner_up:
                        return False
                    seed.score = score
                    break
                # The score is at least u / rate: the clock -log(1 - u) is at least u.
                if u <= seed.score * SCREEN * rate and exponential(u) / rate <= seed.score:
                    return False
                seed.runner_up = min(seed.runner_up, u / rate / SCREEN)
                locate(points, seed.slot, scratch.other_place)
                distance = squared_distance(scratch.place, scratch.other_place)
                scratch.tally.distances += 1
                if step == 0 or distance < d2:
                    d2 = distance
                if d2 == 0.0:
                    return False
    return True
