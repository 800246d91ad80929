"""Which examples are drawn together when a claim's statistics resample them.

Examples that share a template or a name set succeed and fail together, so that their number overstates what is known:
with ``cluster`` a claim speaks of new templates, or new groups, and not of new examples of the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from circuittest.errors import UsageError

if TYPE_CHECKING:
    from circuittest.tasks import Item

#: "group" is the cluster key that the task gives each example; "template" the feature of this name.
Cluster = Literal["none", "group", "template"]

#: Fewer clusters than this are pointed out.
FEW = 10


def cluster_labels(items: Sequence[Item], cluster: Cluster) -> list[str] | None:
    """One label per example, or None where every example stands for itself.

    Raises
    ------
    UsageError
        An example has no such label: clusters are never guessed.
    """
    if cluster == "none":
        return None
    if cluster == "group":
        labels = [item.group for item in items]
    else:
        labels = [str(item.features.get(cluster, "")) for item in items]
    missing = sum(not label for label in labels)
    if missing:
        known = sorted({key for item in items for key in item.features})
        has = f"features {', '.join(known)}" if known else "no features"
        raise UsageError(
            f"{missing} of the {len(items)} examples have no {cluster}",
            f"the task gives {has}",
            "use cluster='none', or a task that says which examples belong together",
        )
    return labels


def said(cluster: Cluster) -> dict[str, Any]:
    """The choice for a record that has it only where examples are drawn together."""
    return {} if cluster == "none" else {"cluster": cluster}


def clustered(labels: Sequence[str] | None, cluster: Cluster) -> dict[str, Any]:
    """What the record says of clusters; nothing without."""
    return {} if labels is None else {"clusters": {"by": cluster, "count": len(set(labels))}}


def few_clusters(labels: Sequence[str] | None, cluster: Cluster) -> tuple[str, ...]:
    """A hint where there are too few clusters for a useful interval."""
    count = FEW if labels is None else len(set(labels))
    if count >= FEW:
        return ()
    return (
        f"only {count} different {cluster}s: more of them would narrow the interval, more examples of each would not",
    )
