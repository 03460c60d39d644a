"""The base of all conformance suites: a check that is inherited runs as it was written, or says why not."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import ClassVar


class ConformanceSuite:
    """Tests that an author inherits. Subclass a suite in a test module, in a class whose name starts with ``Test``.

    A suite is a direct subclass of this class. Its ``test_*`` methods can only be overridden for a reason, written in
    ``waived``; anything else raises TypeError when the subclass is defined, so a suite cannot be hollowed out unseen.
    """

    waived: ClassVar[Mapping[str, str]] = {}
    """Name of an inherited test: why this plugin overrides it or switches it off."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        checks = {
            name: check
            for suite in cls.__mro__
            if ConformanceSuite in suite.__bases__
            for name, check in vars(suite).items()
            if name.startswith("test_")
        }
        for name, check in checks.items():
            if inspect.getattr_static(cls, name) is not check and not cls.waived.get(name, "").strip():
                raise TypeError(f"{cls.__name__} overrides {name} without a reason: add it to {cls.__name__}.waived.")
        for name in cls.waived:
            if name not in checks:
                raise TypeError(f"{cls.__name__}.waived names {name}, which is not an inherited test.")
