"""Who goes first: the scheduling policies, one a file, and the choice among them. No MLX, no text."""

from vllm_mlx_core.api import EngineSettings

from .fair import FairPolicy
from .fcfs import FirstComePolicy
from .policy import SchedulingPolicy
from .priority import PriorityPolicy


def make_policy(settings: EngineSettings) -> SchedulingPolicy:
    """Return the policy that the operator chose, with nothing served yet."""
    match settings.scheduling_policy:
        case "fcfs":
            return FirstComePolicy()
        case "priority":
            return PriorityPolicy()
        case "fair":
            return FairPolicy(settings.fair_shares)


__all__ = ["FairPolicy", "FirstComePolicy", "PriorityPolicy", "SchedulingPolicy", "make_policy"]
