"""What is behind :mod:`dsync` for synchronous clients."""
