"""How much one client may ask for, and how much runs at a time."""

from __future__ import annotations

WINDOW_S = 24 * 3600
"""How long a batch may take: the one completion window that there is."""
MIN_LIFETIME_S = 3600
MAX_LIFETIME_S = 30 * 24 * 3600
"""How long clients may ask a file to be kept."""
MAX_FILES = 10_000
"""Files of one owner, results included when uploads are counted."""
MAX_UNFINISHED_BATCHES = 100
"""Of one owner."""
MAX_FILE_NAME_CHARS = 255
MAX_LINES = 50_000
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_LINE_DEPTH = 101
"""Objects and lists inside one another: as in the body of any request, and the line around it."""
MAX_CUSTOM_ID_CHARS = 512
MAX_ERRORS = 100
"""Faults of a file that are listed; the rest of the file is not looked at."""
LINES_IN_FLIGHT = 8
"""Lines of all batches that the engine has at one time."""
PIECE_BYTES = 256 * 1024
"""How much of a file is in memory at a time."""
