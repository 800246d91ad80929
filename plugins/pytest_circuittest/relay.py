"""Workers of xdist tell the controller how far their measurements are, each over a channel of its own.

Xdist's own channel knows xdist's messages only, and the workers' output is read when a test ends. What arrives is put
into the controller's queue of events, so that the thread which writes pytest's lines writes this one, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from circuittest.progress import Progress
    from circuittest.report.gathered import Message

_KEY = "circuittest_progress"


def register(config: pytest.Config) -> None:
    """Listen to workers where xdist distributes, by whatever rule."""
    distributes = config.pluginmanager.hasplugin("xdist") and config.getoption("dist", "no") != "no"
    if distributes and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Relay(config), "circuittest-relay")


def teller(config: pytest.Config, *, clock: Callable[[], float]) -> Callable[[Progress], Any] | None:
    """In a worker: a listener that tells the controller; None where the controller does not want to know."""
    channel = getattr(config, "workerinput", {}).get(_KEY)
    if channel is None:
        return None
    from circuittest.report.gathered import Teller

    def send(message: Message) -> None:
        with suppress(OSError):  # the controller is gone, and with it whoever looked
            channel.send(message)

    return Teller(send, clock=clock)


class Relay:
    """The hooks of xdist's controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._channels: list[Any] = []  # one that nobody holds closes itself
        self._display: Any = None

    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker its channel, where something will be shown."""
        events = self._config.pluginmanager.getplugin("dsession")
        if self._display is None:
            from pytest_circuittest.live import together

            self._display = together(self._config)
        if self._display is None or events is None:
            return
        # how xdist's loop finds what to do with an event of this name
        events.worker_circuittest_progress = self._display.hear
        name = node.gateway.id

        def arrived(message: Message) -> None:
            # in the thread that receives: no more than to hand it over
            node.putevent((_KEY, {"process": name, "message": message}))

        channel = node.gateway.newchannel()
        channel.setcallback(arrived)
        self._channels.append(channel)
        node.workerinput[_KEY] = channel

    @pytest.hookimpl(tryfirst=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Forget what a worker was measuring."""
        if self._display is not None:
            self._display.hear(node.gateway.id, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Make room: pytest is about to write."""
        self._wipe()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self) -> None:
        """Make room: pytest is about to write."""
        self._wipe()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self) -> None:
        """Make room: pytest is about to write."""
        self._wipe()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Nothing is measured any more."""
        self._wipe()

    def _wipe(self) -> None:
        if self._display is not None:
            self._display.wipe()
