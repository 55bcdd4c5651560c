"""What a market remembers over a kill -9 of its daemon."""

from __future__ import annotations

from windfall.engines.simulated.launch_book import LaunchBook
from windfall.jobs.ids import InstanceId


def test_numbers_are_given_once_and_kept(tmp_path):
    path = tmp_path / "agent" / "launches.json"
    book = LaunchBook(path)
    assert [book.number("e", InstanceId(name), 2) for name in ("i-a", "i-b", "i-a", "i-c", "i-d")] == [
        1,
        2,
        1,
        3,
        3,
    ]
    assert book.number("other", InstanceId("i-e"), 5) == 1
    again = LaunchBook(path)
    assert again.number("e", InstanceId("i-b"), 2) == 2


def test_what_was_taken_is_known_until_nobody_asks_for_it(tmp_path):
    path = tmp_path / "launches.json"
    book = LaunchBook(path)
    book.take(InstanceId("i-a"), 7)
    book.take(InstanceId("i-b"), 8)
    book.number("gone", InstanceId("i-a"), 3)
    book.keep_only(["e"], [InstanceId("i-b")])
    again = LaunchBook(path)
    assert (again.taken_at(InstanceId("i-a")), again.taken_at(InstanceId("i-b"))) == (None, 8)
    assert again.number("gone", InstanceId("i-z"), 3) == 1


def test_a_book_that_cannot_be_read_begins_again(tmp_path, caplog):
    path = tmp_path / "launches.json"
    path.write_text("[1,")
    book = LaunchBook(path)
    assert "begin again" in caplog.text
    assert book.number("e", InstanceId("i-a"), 3) == 1


def test_a_full_disk_stops_no_market(tmp_path, caplog):
    (tmp_path / "file").touch()
    book = LaunchBook(tmp_path / "file" / "launches.json")
    assert book.number("e", InstanceId("i-a"), 3) == 1
    assert "cannot be written" in caplog.text
