"""GOOSE's propositions as pure functions: what a spine tree is expected to emit, and how to share out its branches.

Source: GOOSE, arXiv 2604.02047, propositions 1 to 3. **The statements used here are reconstructions**: consistent with
everything public about the propositions, not copied from the paper. Knows probabilities and shapes only: no tokens, no
scores, no trees with contents, and no data that these probabilities could come from.

Symbols: a_s probability that a spine node is accepted when its turn comes, its parent accepted and no sibling before it
· a_t the same for a branch node · d spine length · b_i branch leaves below spine depth i (depth 0 the root, depth d the
spine's last node) · B node budget, root included. The paper's propositions write p_s and p_t for a_s and a_t; here
those names stand for what the tables of results count, accepted / drafted nodes of a source.

The model: every node is acceptable with its own probability, independently, and the walk takes the first acceptable
child, the spine's before the branches. So b branches hold an acceptable one with probability 1 - (1-a_t)^b, as in
proposition 1, and the j-th of k equal siblings is the accepted one with probability p (1-p)^(j-1), j = 1..k. A model of
averages: real successors lose acceptance from rank to rank and from depth to depth.

Proposition 3 **does not hold** in the form "a_s > a_t => the best spine tree of B nodes emits more than the best
balanced single-source tree (every node a_t) of B nodes". It cannot: at a_s < 1 a spine tree never emits more than
1 / (1-a_s) + 1, a growing balanced tree any number, so that each a_t > 0 wins from some B on. Of the 4851 pairs
a_s > a_t on the grid 0.01, 0.02 .. 0.99 it fails for 0, 81, 349, 697, 1136 at B = 8, 16, 32, 60, 128. The least a_s
from which the spine tree is ahead:

    a_t      0.05   0.10   0.20   0.30   0.40   0.50   0.60   0.70   0.80
    B = 16   0.06   0.11   0.21   0.34   0.44   0.53   0.62   0.71   0.81
    B = 60   0.06   0.11   0.36   0.47   0.56   0.63   0.69   0.74   0.81

Up to B = 60, a_s >= 2 a_t is enough on that grid. Branches are leaves here; the drafter also grows them deeper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import inf, log, log1p


@dataclass(frozen=True)
class SpineTree:
    """A spine with branch leaves; 1 + spine_length + sum(branches) nodes."""

    spine_length: int  # d
    branches: list[int]  # [d + 1], leaves below spine depth i; the spine's own next node is not one
    emitted: float  # expected tokens a step, bonus included


@dataclass(frozen=True)
class BalancedTree:
    """A k-ary tree filled breadth first, its last level from the left."""

    k: int
    emitted: float  # expected tokens a step, bonus included


def expected_yield(spine_length: int, branches: list[int], a_s: float, a_t: float) -> float:
    """Expected tokens a step emits, bonus included (proposition 1's right-hand side; exact when branches are leaves).

    1 + sum_{i=1..d} a_s^i + sum_{i=0..d-1} a_s^i (1-a_s) (1-(1-a_t)^{b_i}) + a_s^d (1-(1-a_t)^{b_d})
    """
    _check(spine_length, 0, a_s, a_t)
    if len(branches) != spine_length + 1 or min(branches) < 0:
        raise ValueError(f"a spine of {spine_length} takes {spine_length + 1} branch counts >= 0, got {branches}")
    on_spine = sum(a_s**i for i in range(1, spine_length + 1))
    leaves = zip(_leaving_probabilities(spine_length, a_s), branches, strict=True)
    return 1 + on_spine + sum(p * (1 - (1 - a_t) ** b) for p, b in leaves)


def harmonic_allocation(n_branches: int, n_spine: int) -> list[int]:
    """How many branches each spine node gets, top down: share / i, at least one while any are left.

    The reference's stand-in for proposition 2's linear decay; what rounding leaves over is not handed out. Unlike the
    two below it gives the root nothing: the list is for spine depths 1..n_spine.
    """
    _check(n_spine, n_branches, 0, 0)
    total_weight = sum(1 / i for i in range(1, n_spine + 1))
    allocation: list[int] = []
    for i in range(1, n_spine + 1):
        width = min(max(1, int(n_branches * (1 / i) / total_weight)), n_branches - sum(allocation))
        allocation.append(width)
    return allocation


def linear_allocation(spine_length: int, n_branches: int, a_s: float, a_t: float) -> list[int]:
    """Branches of spine depths 0..d by proposition 2, rounded so that they sum to n_branches.

    b_i = max(0, b_0 - i |ln a_s| / |ln(1-a_t)|): equal marginal value, a_s^i (1-a_t)^{b_i} the same at every depth that
    gets any. b_0 is the real number at which the b_i sum to n_branches; the largest remainders are rounded up, the
    shallower of equal ones first.

    The formula treats the spine's last node like the others. Exactly, the walk leaves the spine there with a_s^d and
    not with a_s^d (1-a_s), which is worth |ln(1-a_s)| / |ln(1-a_t)| branches more; `optimal_allocation` counts them.
    Limits: a_s = 1 and (a_s > 0) a_t = 1 spread evenly; a_s = 0 and (a_s < 1) a_t = 0 give everything to the root.
    """
    _check(spine_length, n_branches, a_s, a_t)
    slope = _decay(a_s, a_t)
    if slope == inf:
        return [n_branches] + [0] * spine_length
    # m depths get any while m b_0 - slope m (m-1) / 2 = n_branches leaves the last of them more than nothing.
    m = 1
    while m <= spine_length and n_branches > slope * m * (m + 1) / 2:
        m += 1
    b_0 = n_branches / m + slope * (m - 1) / 2
    exact = [max(0.0, b_0 - i * slope) for i in range(m)] + [0.0] * (spine_length + 1 - m)
    rounded = [int(b) for b in exact]
    by_remainder = sorted(range(m), key=lambda i: rounded[i] - exact[i])
    for i in by_remainder[: n_branches - sum(rounded)]:
        rounded[i] += 1
    return rounded


def optimal_allocation(spine_length: int, n_branches: int, a_s: float, a_t: float) -> list[int]:
    """Branches of spine depths 0..d, n_branches in all, that maximise `expected_yield`; ties go to the shallower depth.

    One branch at a time to the depth with the largest gain w_i a_t (1-a_t)^{b_i}, w_i the probability that the walk
    leaves the spine there.
    """
    # Why greedy is exact: the yield is a constant plus one term a depth, and a term's gains w_i a_t (1-a_t)^b for
    # b = 0, 1, .. never rise (it is concave). Any allocation of n branches collects n distinct gains out of the pool of
    # all depths' gains, so none beats the pool's n largest. Greedy collects just these: the largest gain left in the
    # pool is always some depth's next one, because within a depth the gains come in falling order.
    _check(spine_length, n_branches, a_s, a_t)
    branches = [0] * (spine_length + 1)
    gains = [(-p * a_t, i) for i, p in enumerate(_leaving_probabilities(spine_length, a_s))]
    heapify(gains)
    for _ in range(n_branches):
        gain, i = gains[0]
        branches[i] += 1
        heapreplace(gains, (gain * (1 - a_t), i))
    return branches


def best_spine_tree(a_s: float, a_t: float, budget: int) -> SpineTree:
    """The spine length and branches of the largest expected yield at B = budget nodes; of equals the shorter spine."""
    return _best(optimal_allocation, a_s, a_t, budget)


def best_harmonic_tree(a_s: float, a_t: float, budget: int, rho: float = 0.5) -> SpineTree:
    """`best_spine_tree` with the reference's sharing: rho of the branches harmonic on the spine, the rest at the root.

    Nodes that the harmonic rounding leaves over are not drafted; the drafter grows its branches deeper with them.
    """

    if not 0 <= rho <= 1:
        raise ValueError(f"rho must be a share in [0, 1], got {rho}")

    def allocate(spine_length: int, n_branches: int, a_s: float, a_t: float) -> list[int]:
        on_spine = max(1, int(n_branches * rho)) if spine_length and n_branches else 0
        return [n_branches - on_spine, *harmonic_allocation(on_spine, spine_length)]

    return _best(allocate, a_s, a_t, budget)


def balanced_yield(k: int, n_nodes: int, p: float) -> float:
    """Expected tokens a step emits, bonus included, with a balanced k-ary tree of n_nodes, root included.

    Filled breadth first: node v > 0 is child number (v-1) mod k of node (v-1) // k, so the last level stands below the
    siblings that are tried first. The yield is the sum over all nodes of the probability that the walk reaches them; a
    full set of k siblings passes it on with 1 - (1-p)^k.
    """
    _check(0, 0, p, p)
    if k < 1 or n_nodes < 1:
        raise ValueError(f"a balanced tree has k >= 1 and its root, got k {k} and {n_nodes} nodes")
    is_accepted = [p * (1 - p) ** rank for rank in range(min(k, n_nodes))]
    reached = [1.0]
    for node in range(1, n_nodes):
        parent, rank = divmod(node - 1, k)
        reached.append(reached[parent] * is_accepted[rank])
    return sum(reached)


def best_balanced_tree(p: float, budget: int) -> BalancedTree:
    """The arity of the largest expected yield at B = budget nodes, all of them used: a node more never lowers it."""
    trees = [BalancedTree(k, balanced_yield(k, budget, p)) for k in range(1, max(2, budget))]
    return max(trees, key=lambda tree: tree.emitted)


def _best(allocate: Callable[[int, int, float, float], list[int]], a_s: float, a_t: float, budget: int) -> SpineTree:
    """The best of all spine lengths, each with allocate(spine_length, n_branches, a_s, a_t)."""
    if budget < 1:
        raise ValueError(f"a tree holds at least its root: the node budget must be >= 1, got {budget}")
    shapes = [(d, allocate(d, budget - 1 - d, a_s, a_t)) for d in range(budget)]
    trees = [SpineTree(d, branches, expected_yield(d, branches, a_s, a_t)) for d, branches in shapes]
    return max(trees, key=lambda tree: tree.emitted)


def _leaving_probabilities(spine_length: int, a_s: float) -> list[float]:
    """[d + 1]: probability that exactly i spine nodes are accepted. They sum to 1."""
    return [a_s**i * (1 - a_s) for i in range(spine_length)] + [a_s**spine_length]


def _decay(a_s: float, a_t: float) -> float:
    """|ln a_s| / |ln(1-a_t)|: so many branches less a depth. 0/0 (a_s = 1) counts as 0, inf/inf (a_s = 0) as inf."""
    if a_s == 1.0:
        return 0.0
    if a_s == 0.0 or a_t == 0.0:
        return inf
    return 0.0 if a_t == 1.0 else log(a_s) / log1p(-a_t)


def _check(spine_length: int, n_branches: int, a_s: float, a_t: float) -> None:
    if spine_length < 0 or n_branches < 0:
        raise ValueError(f"spine length and branch count must be >= 0, got {spine_length} and {n_branches}")
    if not (0 <= a_s <= 1 and 0 <= a_t <= 1):
        raise ValueError(f"a_s and a_t must be probabilities in [0, 1], got {a_s} and {a_t}")
