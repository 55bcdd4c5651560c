"""Log groups as clients declare them: made, deleted, with retention and tags.

Decides what CloudWatch Logs answers. A job that logs to a missing group creates it, so nothing has to be declared. Must
not know events or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windfall.aws_api.logs.errors import InvalidParameter, LogsError, group_not_found
from windfall.aws_api.logs.streams import DEFAULT_GROUP, group_exists, identified_group
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.tenants.gate import TenantGate, view_of
from windfall.control.commands.logs import CreateLogGroup, DeleteLogGroup, SetLogGroup
from windfall.control.ports import CorePort, Store
from windfall.jobs.errors import Conflict
from windfall.jobs.log_groups import RETENTION_DAYS, LogGroup

_TAGS_MAX = 50


class LogGroups:
    """The operations on groups."""

    def __init__(self, gate: CorePort, account_id: str) -> None:
        self._gate = gate
        self._account_id = account_id

    async def create(self, call: Call) -> dict[str, Any]:
        """CreateLogGroup."""
        name, tags = call.params["logGroupName"], call.params.get("tags", {})
        if call.params.get("logGroupClass", "STANDARD") != "STANDARD":
            raise InvalidParameter("Windfall supports only log groups of class STANDARD.")
        in_use: bool = await self._seen(call).read(lambda store: group_exists(store, name))
        try:
            await self._seen(call).execute(CreateLogGroup(name, tags, in_use))
        except Conflict as error:
            raise LogsError("ResourceAlreadyExistsException", f"{error}") from None
        return {}

    async def delete(self, call: Call) -> dict[str, Any]:
        """DeleteLogGroup."""
        name = call.params["logGroupName"]
        await self._require(call, name)
        await self._seen(call).execute(DeleteLogGroup(name))
        return {}

    async def put_retention(self, call: Call) -> dict[str, Any]:
        """PutRetentionPolicy."""
        name, days = call.params["logGroupName"], call.params["retentionInDays"]
        if days not in RETENTION_DAYS:
            allowed = ", ".join(map(str, sorted(RETENTION_DAYS)))
            raise InvalidParameter(f"retentionInDays is {days}; it must be one of {allowed}.")
        await self._require(call, name)
        await self._seen(call).execute(SetLogGroup(name, retention_days=days))
        return {}

    async def delete_retention(self, call: Call) -> dict[str, Any]:
        """DeleteRetentionPolicy."""
        name = call.params["logGroupName"]
        await self._require(call, name)
        await self._seen(call).execute(SetLogGroup(name, retention_days=0))
        return {}

    async def list_tags(self, call: Call) -> dict[str, Any]:
        """ListTagsForResource and ListTagsLogGroup."""
        group = await self._require(call, self._named(call.params))
        return {"tags": {} if group is None else dict(group.tags)}

    async def tag(self, call: Call) -> dict[str, Any]:
        """TagResource and TagLogGroup."""
        name = self._named(call.params)
        group = await self._require(call, name)
        tags = {**({} if group is None else group.tags), **call.params["tags"]}
        if len(tags) > _TAGS_MAX:
            raise LogsError("TooManyTagsException", f"A log group has at most {_TAGS_MAX} tags.")
        await self._seen(call).execute(SetLogGroup(name, tags=tags))
        return {}

    async def untag(self, call: Call) -> dict[str, Any]:
        """UntagResource and UntagLogGroup."""
        name = self._named(call.params)
        group = await self._require(call, name)
        gone = set(call.params.get("tagKeys") or call.params.get("tags") or ())
        remaining = {
            key: value for key, value in ({} if group is None else group.tags).items() if key not in gone
        }
        await self._seen(call).execute(SetLogGroup(name, tags=remaining))
        return {}

    def _seen(self, call: Call) -> CorePort:
        return TenantGate(self._gate, view_of(call.caller))

    def _named(self, params: Mapping[str, Any]) -> str:
        if "resourceArn" in params:
            return identified_group(params["resourceArn"], self._account_id)
        return str(params["logGroupName"])

    async def _require(self, call: Call, name: str) -> LogGroup | None:
        """What is declared of a group; ResourceNotFound for one that does not exist."""

        def look(store: Store) -> tuple[bool, LogGroup | None]:
            groups = {group.name: group for group in store.declared(LogGroup)}
            return group_exists(store, name), groups.get(name)

        answer: tuple[bool, LogGroup | None] = await self._seen(call).read(look)
        exists, group = answer
        if not exists and name != DEFAULT_GROUP:
            raise group_not_found()
        return group
