"""What tells an agent's settings from others."""

from __future__ import annotations

import msgspec

from windfall.agent.settings import AgentSettings


def test_the_digest_survives_the_way_to_the_agent_and_tells_settings_apart():
    settings = AgentSettings("/d", "/a", vcpus=4)
    received = msgspec.json.decode(msgspec.json.encode(settings), type=AgentSettings)
    assert received.digest == settings.digest
    assert AgentSettings("/d", "/a", vcpus=8).digest != settings.digest
    assert AgentSettings("/d", "/a", vcpus=8).agent_id == settings.agent_id
