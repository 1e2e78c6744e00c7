"""What is made once for all tests of the service: the built wheel, and a user manager of systemd's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.daemon.conftest import daemon, folder, nothing_left
from tests.service.manager import UserManager, why_not
from tests.service.wheel import Built, built


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with built(shared) as found:
        yield found


@pytest.fixture(scope="module")
def systemd(wheel: Built) -> Iterator[UserManager]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    manager = UserManager(wheel)
    try:
        manager.open()
        yield manager
    finally:
        manager.close()


@pytest.fixture
def manager(systemd: UserManager) -> Iterator[UserManager]:
    """The user manager with nothing of fabled in it."""
    systemd.clean()
    yield systemd
    systemd.clean()


__all__ = ["daemon", "folder", "nothing_left"]
