"""One process at a time: a file or folder is held for as long as it stays open."""


def lock(handle: int, message: str) -> None:
    """Hold what is open as `handle`, where the system knows locks; ValueError(message) if another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(message) from None
