"""Members that differ in nothing but their names: of equal sets, only the one that is preferred need be tried."""

from kafila_planner.search.pool import Pool

Twins = list[list[int]]
"""Classes of interchangeable members, two or more, the preferred first: the anchor, then by name."""


def twins_of(pool: Pool) -> Twins:
    anchor = pool.case.anchor
    classes: Twins = []
    for member in sorted(range(len(pool.case.members)), key=lambda member: (member != anchor, member)):
        alike = next((twins for twins in classes if _are_twins(pool, twins[0], member)), None)
        if alike is None:
            classes.append([member])
        else:
            alike.append(member)
    return [twins for twins in classes if len(twins) > 1]


def is_first_choice(mask: int, classes: Twins) -> bool:
    """Whether the set has nobody whose preferred twin it lacks."""
    for twins in classes:
        present = [mask >> member & 1 for member in twins]
        if present != sorted(present, reverse=True):
            return False
    return True


def first_choice(ring: tuple[int, ...], classes: Twins) -> tuple[int, ...]:
    """The ring with preferred twins in the places of the others."""
    instead: dict[int, int] = {}
    for twins in classes:
        present = [member for member in ring if member in twins]
        instead.update(zip(present, twins, strict=False))
    return tuple(instead.get(member, member) for member in ring)


def _are_twins(pool: Pool, a: int, b: int) -> bool:
    case = pool.case
    return (
        case.room_bytes[a] == case.room_bytes[b]
        and pool.required >> a & 1 == pool.required >> b & 1
        and all(one.fixed[a] == one.fixed[b] and one.head[a] == one.head[b] for one in pool.prices)
        and all(one.per_byte[a] == one.per_byte[b] for one in pool.prices)
        and all(pool.weights[a][c] == pool.weights[b][c] for c in range(len(case.members)) if c not in (a, b))
    )
