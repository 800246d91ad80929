"""What a lab is about: a model, the examples of a task, and labs of other tasks and of parts of this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuittest.errors import TaskError, UsageError, did_you_mean
from circuittest.units import Layout, Unit

if TYPE_CHECKING:
    from circuittest.lab.lab import Lab
    from circuittest.models.loaded import LoadedModel
    from circuittest.store import Store
    from circuittest.tables import OutcomeTable, ScoreTable
    from circuittest.tasks import Task, TaskData

ACCURACIES = ("argmax", "candidates")
METRICS = ("log_prob", "logit_diff", "prob_diff", "kl")


class Subject:
    """A model and its examples of a task; nothing is loaded before it is needed."""

    def __init__(
        self,
        model: Any,
        task: str | Task | TaskData | Sequence[Mapping[str, Any]],
        *,
        tokenizer: Any = None,
        name: str | None = None,
        discover: int = 200,
        evaluate: int = 200,
        seed: int = 0,
        prefix: str = "auto",
        device: str = "auto",
        dtype: str = "float32",
        accuracy: str | None = None,
        metric: str | None = None,
        answers: str = "first",
        headroom: float = 0.2,
        budget: int | None = None,
        store: Store | str | Path | None = None,
    ) -> None:
        for value, known, what in ((accuracy, ACCURACIES, "accuracy"), (metric, METRICS, "metric")):
            if value is not None and value not in known:
                raise UsageError(f"unknown {what} {value!r}", "", did_you_mean(str(value), known))
        if not 0 <= headroom < 1:
            raise UsageError(f"headroom is {headroom!r}", "it is a difference of accuracies", "use 0.2")
        self._model, self._tokenizer, self._name = model, tokenizer, name
        self._task = task
        self._sizes = {"discover": discover, "evaluate": evaluate, "seed": seed}
        self._prefix, self._device, self._dtype = prefix, device, dtype
        self._accuracy, self._metric, self._answers = accuracy, metric, answers
        if budget is not None and budget < 1:
            raise UsageError(f"budget is {budget!r}", "it counts forwards", "use a positive number, or None")
        self.headroom, self.budget = headroom, budget
        self._kept_in = store
        self._others: dict[str, Lab] = {}
        self._scores: dict[tuple[Any, ...], ScoreTable] = {}
        self._copies: dict[str, LoadedModel] = {}
        self._outcomes: dict[tuple[str, str, str, tuple[tuple[Unit, ...], ...]], OutcomeTable] = {}
        self._patched: dict[tuple[Any, ...], OutcomeTable] = {}
        self._likely: dict[tuple[Any, ...], Any] = {}

    # What is measured -------------------------------------------------------------------------------------------

    @cached_property
    def store(self) -> Store | None:
        """Where tables are kept beyond this lab, if anywhere."""
        from circuittest.store import Store

        return Store(self._kept_in) if isinstance(self._kept_in, (str, Path)) else self._kept_in

    @cached_property
    def model(self) -> LoadedModel:
        """The model, loaded and checked (`circuittest.models.preflight`). Raises LoadError or UnsupportedModel.

        Where a store knows the model and that it was checked, its weights are read only when they are needed.
        """
        from circuittest.lab.kept import checked
        from circuittest.models.loaded import LoadedModel
        from circuittest.models.loading import from_module, load_model

        if isinstance(self._model, LoadedModel):
            model = self._model
        elif isinstance(self._model, (str, Path)):
            model = load_model(
                str(self._model),
                tokenizer=self._tokenizer,
                device=self._device,
                dtype=self._dtype,
                store=self.store,
            )
        else:
            model = from_module(self._model, self._tokenizer, self._name or "in-memory")
        checked(self.store, model)
        return model

    @cached_property
    def data(self) -> TaskData:
        """The examples as this model sees them. Raises TaskError."""
        from circuittest.tasks import Posed, TaskData, as_task, prepare

        if isinstance(self._task, TaskData):
            return _disjoint(self._task)
        task = as_task(self._task)
        how: dict[str, Any] = {"prefix": self._prefix, "answers": self._answers, **self._sizes}
        if isinstance(task, Posed) and task.written:
            from circuittest.lab.chains import write_chains

            return write_chains(self.model, task, prepare(task.as_shown(), self.model.tokenizer, **how))
        return prepare(task, self.model.tokenizer, **how)

    @property
    def layout(self) -> Layout:
        """The units of the model."""
        return self.model.layout

    @property
    def fingerprint(self) -> str:
        """Hash of the model's configuration and weights."""
        return self.model.fingerprint

    @property
    def accuracy(self) -> str:
        """How an example counts as correct."""
        return self._accuracy or self.data.accuracy

    @property
    def metric(self) -> str:
        """What attribution differentiates."""
        return self._metric or self.data.metric

    def on(self, task: str | Task) -> Lab:
        """The lab of another task on the same model, with the same sizes, seed and prefix; each is made once."""
        from circuittest.lab.lab import Lab

        # tasks of one name may differ (pools, files); the lab below keeps the task, and with it its id
        key = task if isinstance(task, str) else f"task {id(task)}"
        if key not in self._others:
            self._others[key] = Lab(
                self.model,
                task,
                name=self._name,
                discover=self._sizes["discover"],
                evaluate=self._sizes["evaluate"],
                seed=self._sizes["seed"],
                prefix=self._prefix,
                answers=self._answers,
                headroom=self.headroom,
                store=self.store,
            )
        return self._others[key]

    def on_text(self, path: str | Path) -> Lab:
        """The lab of running text on the same model: predict the true next token (`circuittest.tasks.text`)."""
        from circuittest.lab.lab import Lab
        from circuittest.tasks.text import text_data

        key = f"text {path}"
        if key not in self._others:
            data = text_data(path, self.model.tokenizer, prefix=self._prefix)
            self._others[key] = Lab(self.model, data, name=self._name, prefix=self._prefix, store=self.store)
        return self._others[key]

    def where(self, predicate: str) -> Lab:
        """The lab of a subtask: the examples for which a predicate on their features holds (``template == 0``).

        Raises UsageError and TaskError; see `circuittest.tasks.subtask`.
        """
        from circuittest.tasks.subtask import restricted

        key = f"where {predicate}"
        if key not in self._others:
            self._others[key] = self.with_examples(restricted(self.data, predicate))
        return self._others[key]

    def with_examples(self, data: TaskData) -> Lab:
        """The lab of other examples on the same model, judged in the same way; see `circuittest.lab.inputs`."""
        from circuittest.lab.lab import Lab

        sizes: dict[str, Any] = {**self._sizes, "prefix": self._prefix, "answers": self._answers}
        how: dict[str, Any] = {
            "accuracy": self.accuracy,
            "metric": self.metric,
            "headroom": self.headroom,
            "store": self.store,
        }
        return Lab(self.model, data, name=self._name, **sizes, **how)

    def with_model(self, model: str) -> Lab:
        """The lab of another model on the same examples, by token ids; raises LoadError where it cannot be loaded."""
        from circuittest.lab.lab import Lab

        key = f"model {model}"
        if key not in self._others:
            how: dict[str, Any] = {"device": self._device, "dtype": self._dtype, "headroom": self.headroom}
            how |= {"store": self.store}
            other = Lab(model, self.data, accuracy=self.accuracy, metric=self.metric, **how)
            self._others[key] = other
        return self._others[key]

    def untrained(self, seed: int = 0) -> Lab:
        """The lab of an untrained twin of the model (same configuration, fresh weights) on the same examples.

        Raises UnsupportedModel where there can be none.
        """
        from circuittest.lab.lab import Lab
        from circuittest.models.untrained import untrained_twin

        key = f"untrained {seed}"
        if key not in self._others:
            twin = untrained_twin(self.model, seed, store=self.store)
            self._others[key] = Lab(
                twin,
                self.data,
                accuracy=self.accuracy,
                metric=self.metric,
                headroom=self.headroom,
                store=self.store,
            )
        return self._others[key]

    def __repr__(self) -> str:
        named = self._model if isinstance(self._model, (str, Path)) else getattr(self._model, "name", None)
        model = self._name or (named if isinstance(named, (str, Path)) else "in-memory")
        task = Path(self._task).name if isinstance(self._task, str) else getattr(self._task, "name", "task")
        return f"Lab({model}, {task})"


def _disjoint(data: TaskData) -> TaskData:
    """The same data; TaskError where a prompt is in both splits (what chooses must not judge), or twice in one."""
    chosen = {item.prompt_ids for item in data.discover}
    if both := sum(item.prompt_ids in chosen for item in data.evaluate):
        raise TaskError(
            f"task {data.task!r}: {both} of {len(data.evaluate)} evaluation prompts are discovery prompts, too",
            "what chooses circuits, orders and means must not judge them",
            "leave them out of one of the two",
        )
    for split in ("discover", "evaluate"):
        items = getattr(data, split)
        if more := len(items) - len({(item.prompt_ids, item.answer_ids) for item in items}):
            raise TaskError(
                f"task {data.task!r}: {more} of {len(items)} examples of {split!r} are there already",
                "each would count as a new one, and intervals would be too short",
                "leave them out",
            )
    return data
