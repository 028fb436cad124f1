"""Word problems of our own: two to four steps of arithmetic in everyday words, for what may not see a measured set.

Texts are drawn from the templates below by a seed; the same seed gives the same texts on every machine.
"""

import random

_NAMES = ("Ada", "Bruno", "Chen", "Dalia", "Emeka", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena", "Noor")
_THINGS = (
    "stamps", "apples", "marbles", "postcards", "candles", "notebooks", "seashells", "muffins", "buttons", "tomatoes",
)  # fmt: skip
_PLACES = ("market", "school fair", "library", "bakery", "harbour", "garden centre", "museum shop", "bus station")
_CONTAINERS = ("boxes", "bags", "crates", "baskets", "shelves", "jars")

_TEMPLATES = (
    "{a} has {n} {things}. {b} has {k} times as many. They put them all into {containers} of {m}. How many "
    "{containers} do they need if the last one may be only partly full?",
    "At the {place}, {a} sells {things} for ${p} each. On Monday {n} are sold, on Tuesday {m} more than on Monday. "
    "How much money does {a} take in over the two days?",
    "{a} reads {n} pages on each weekday and {m} pages on each day of the weekend. After {k} weeks, {q} pages of the "
    "book are left. How many pages does the book have?",
    "A train leaves the {place} with {q} passengers. At the first stop {n} get off and {m} get on, at the second stop "
    "half of those on board get off. How many passengers are on the train now?",
    "{a} earns ${p} an hour and works {n} hours a week. {b} earns ${k} an hour more but works {m} hours a week. How "
    "much do the two earn together in four weeks?",
    "A recipe for {n} muffins needs {k} eggs. {a} wants to bake {m} times as many muffins for the {place} and already "
    "has {p} eggs. How many eggs does {a} still have to buy?",
    "{a} plants {k} rows of {n} tomatoes. {p} of the plants do not grow. Each of the others gives {m} tomatoes. If {b} "
    "buys a quarter of the harvest, how many tomatoes are left?",
    "Tickets for the {place} cost ${p} for adults and half of that for children. A group of {n} adults and {m} "
    "children pays with ${big}. How much change does the group get?",
    "{a} walks {k} kilometres to the {place} every morning and takes the same way back. {b} lives {p} kilometres "
    "farther away. How many kilometres more than {a} does {b} walk in {n} days?",
    "{a} saves ${p} a week and has saved for {n} weeks. Then {a} buys {k} {things} at ${m} each. How many more weeks "
    "must {a} save to have ${big}?",
)


def word_problems(n: int, seed: int) -> list[str]:
    """n questions, templates in turn."""
    rng = random.Random(seed)  # of the standard library, whose draws do not change with a version of numpy
    texts = []
    for i in range(n):
        a, b = rng.sample(_NAMES, 2)
        words = {"a": a, "b": b, "things": rng.choice(_THINGS), "place": rng.choice(_PLACES)}
        numbers = {
            "n": rng.randint(6, 40),
            "m": rng.randint(3, 24),
            "k": rng.randint(2, 6),
            "p": 2 * rng.randint(2, 15),
        }
        larger = {"q": 10 * rng.randint(12, 40), "big": 100 * rng.randint(10, 20)}
        template = _TEMPLATES[i % len(_TEMPLATES)]
        texts.append(template.format(**words, **numbers, **larger, containers=rng.choice(_CONTAINERS)))
    return texts
