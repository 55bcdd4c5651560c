"""Which symbolic links may be kept."""

from __future__ import annotations

import pytest

from windfall.agent.sync.links import kept_target, led_to, stays_inside


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("latest", "epoch-2", True),
        ("latest", "./epoch-2/model", True),
        ("a/b", "../c", True),
        ("a/b", "..", True),
        ("latest", ".", True),
        ("latest", "..", False),
        ("a/b", "../../c", False),
        ("latest", "/etc/passwd", False),
        ("latest", "", False),
        ("latest", "a\0b", False),
        # Through a link to a directory higher up this would lead out.
        ("x", "s/t/link/../../y", False),
        ("x", None, False),
    ],
)
def test_a_link_goes_up_first_and_then_only_down(path, target, inside):
    assert stays_inside(path, target) is inside


@pytest.mark.parametrize(
    ("path", "target", "kept"),
    [
        ("latest", "/srv/ckpt/epoch-2", "epoch-2"),
        ("a/b/latest", "/srv/ckpt/a/c", "../c"),
        ("latest", "/srv/ckpt", "."),
        ("latest", "/srv/ckpt-other/x", None),
        ("latest", "/srv/ckpt/../x", None),
        ("latest", "/opt/ml/checkpoints/x/", "x"),
    ],
)
def test_an_absolute_target_inside_becomes_a_relative_one(path, target, kept):
    assert kept_target(path, target, ("/srv/ckpt", "/opt/ml/checkpoints")) == kept


def test_where_a_link_leads():
    assert led_to("a/latest", "../b/c") == "b/c"
    assert led_to("latest", ".") == ""
