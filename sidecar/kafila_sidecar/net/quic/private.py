"""The names that aioquic doesn't promise and that this package reaches for: they are looked for when it is imported."""


def refuse_without(owners: dict[str, object]) -> None:
    """Raises ImportError where an owner lacks one of the names, which come before it, with blanks between them."""
    missing = [
        f"{type(owner).__name__}.{name}"
        for names, owner in owners.items()
        for name in names.split()
        if not hasattr(owner, name)
    ]
    if missing:
        raise ImportError(f"this aioquic lacks {', '.join(missing)}: install the version that kafila pins")
