"""What a client is told about directories before it submits, and which questions are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.entering import Entering

CALLER = Caller("AKIAMEMBER", Role.SUBMIT, "default")


class NoUsers:
    """A loop that has no user for anybody, so that jobs run as the daemon's job user."""

    async def inspect(self, _: Any) -> None:
        return None


def check(*directories: Any) -> dict[str, tuple[bool, bool]]:
    call = Call("windfall", "CheckDirectories", {"directories": list(directories)}, CALLER, "r", "1", 0)
    answer = asyncio.run(Entering(NoUsers(), "nobody").check(call))
    return {found["path"]: (found["enters"], found["writes"]) for found in answer["directories"]}


def test_directories_are_tried(tmp_path):
    file = tmp_path / "file"
    file.touch()
    nowhere = f"/{'x' * 4094}"
    found = check("/", str(file), nowhere)
    assert found["/"][0]
    assert found[str(file)] == found[nowhere] == (False, False)


@pytest.mark.parametrize(
    "directories",
    [["relative"], [""], [7], ["/a\0b"], ["/\ud800"], ["/"] * 17, [f"/{'x' * 4095}"], ["/" + "x" * 500_000]],
)
def test_what_names_no_directory_is_refused(directories):
    with pytest.raises(ApiError, match="at most 16 absolute paths of less than 4096 bytes"):
        check(*directories)
