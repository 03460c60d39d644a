"""How much room requests that nobody waits for may have."""

IDLE_SHARE = 8
"""The part of the room, as one in so many, that idle entries may have at the cost of others."""
