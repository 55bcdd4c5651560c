"""The page's pure modules, run in the browser itself: signing, ANSI, words, the life of a job, differences."""

from __future__ import annotations

from itertools import pairwise

import pytest

from windfall.aws_api.protocol.sigv4 import sign

#: A moment, in milliseconds.
AT = 1_795_000_000_000


@pytest.fixture(scope="module")
def run(browser, windfall):
    """Evaluates an expression over a module of the page."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{windfall.url}/ui/")

    def run_(module, expression, argument=None):
        return page.evaluate(
            f"async (given) => {{ const m = await import('/ui/{module}.js'); return ({expression}); }}",
            argument,
        )

    yield run_
    context.close()


def test_the_browser_signs_as_the_command_line_does(run):
    body = '{"jobs":["ä"]}'
    made = run(
        "sign",
        "m.sessionOf({accessKeyId: 'WNDFEXAMPLE', secretAccessKey: 'geheim', sessionToken: 'wfs1.x',"
        "region: 'eu-west-1'})"
        ".then((s) => m.signed(s, given))",
        {
            "service": "batch",
            "path": "/v1/describejobs",
            "headers": {"content-type": "application/json"},
            "body": body,
            "host": "127.0.0.1:8470",
            "now": AT,
        },
    )
    expected = sign(
        method="POST",
        url="http://127.0.0.1:8470/v1/describejobs",
        headers={"content-type": "application/json"},
        body=body.encode(),
        access_key_id="WNDFEXAMPLE",
        secret_access_key="geheim",
        session_token="wfs1.x",
        region="eu-west-1",
        service="batch",
        now=AT / 1000,
    )
    assert made["authorization"] == expected["authorization"]
    assert made["x-amz-security-token"] == "wfs1.x"
    assert "host" not in made, "browsers send it themselves"


def test_the_secret_of_a_session_cannot_be_read_back(run):
    refused = run(
        "sign",
        "m.sessionOf({accessKeyId: 'a', secretAccessKey: 'geheim'})"
        ".then((s) => crypto.subtle.exportKey('raw', s.key).then(() => 'given away', (e) => e.name))",
    )
    assert refused == "InvalidAccessError"


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("plain", [["plain", ""]]),
        ("\x1b[1;31mbad\x1b[0m good", [["bad", "fg1 bold"], [" good", ""]]),
        ("\x1b[38;5;9mbright\x1b[39m", [["bright", "fg9"]]),
        ("\x1b[38;2;1;2;3mtrue colour\x1b[0m", [["true colour", ""]]),
        ("\x1b]0;title\x07\x1b[2J\x1b[10;10Htext\x07", [["text", ""]]),
        ("\x1b]8;;http://evil.invalid\x1b\\link\x1b]8;;\x1b\\", [["link", ""]]),
        ("\x1bPdevice\x1b\\after", [["after", ""]]),
        ("\x1b]52;c;bm90IGNsb3NlZA==", []),
        (" 10 %\r 50 %\r100 %\r", [["100 %", ""]]),
        ("a\x00b\x08c\x9bd", [["a", ""], ["b", ""], ["c", ""], ["d", ""]]),
        ("<b>&amp;</b>", [["<b>&amp;</b>", ""]]),
    ],
)
def test_colours_stay_and_everything_else_of_a_terminal_goes(run, line, pieces):
    assert run("ansi", "m.pieces(given)", line) == pieces


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("m.span(0)", "0 s"),
        ("m.span(300)", "< 1 s"),
        ("m.span(8_000_000)", "2 h 13 min"),
        ("m.span(null)", "-"),
        ("m.num(0.000333)", "0.00033"),
        ("m.bytes(1536)", "1.5 kB"),
        ("m.usd(0.034)", "$0.034"),
        ("m.usd(1234.5)", "$1,235"),
        ("m.count(1, 'job')", "1 job"),
        ("m.count(12345, 'job')", "12,345 jobs"),
        ('m.quoted("it\'s")', "'it'\\''s'"),
        ("m.cut('x'.repeat(10000), 3)", "xxx… (10,000 characters)"),
    ],
)
def test_values_are_written_for_people(run, expression, words):
    assert run("words", expression) == words


def test_a_life_has_no_holes_and_its_losses_are_the_ledgers(run):
    page = {
        "row": {"createdAt": 0, "stoppedAt": None, "queue": "q"},
        "reasons": [{"at": 10, "untilAt": 1000, "code": "room", "text": "all GPUs are taken"}],
        "attempts": [
            {
                "number": 1, "placedAt": 1000, "preparedAt": None, "startedAt": 1500, "stopAt": 5000, "exitedAt": 6000,
                "stoppedAt": 7000, "stopWords": "the market took it", "exitCode": 143, "restored": None,
                "marks": [[4000, 4000, 40, 10]],
            },
            {
                "number": 2, "placedAt": 9000, "preparedAt": 9500, "startedAt": 9600, "stopAt": None, "exitedAt": None,
                "stoppedAt": None, "restored": {"name": "x", "step": 40, "bytes": 10}, "marks": [],
            },
        ],
    }  # fmt: skip
    cost = {"attempts": [{"number": 1, "ms": {"lost": 900}}]}
    life = run("lifeline", "m.life(given[0], 20000, given[1])", [page, cost])
    line = [part for part in life["parts"] if part["kind"] != "lost"]
    assert [part["kind"] for part in line] == [
        "waiting", "waiting", "starting", "running", "notice", "flushing",
        "waiting", "restoring", "starting", "running",
    ]  # fmt: skip
    for before, after in pairwise(line):
        assert before["to"] == after["from"], (before, after)
    assert line[-1]["to"] == 20000
    (lost,) = [part for part in life["parts"] if part["kind"] == "lost"]
    assert (lost["from"], lost["to"]) == (5100, 6000)
    assert [mark["step"] for mark in life["marks"]] == [40]


def test_a_difference_keeps_what_is_common(run):
    assert run("job_tabs", "m.difference('a\\nb\\nc', 'a\\nx\\nc')") in (
        [[" ", "a"], ["+", "x"], ["-", "b"], [" ", "c"]],
        [[" ", "a"], ["-", "b"], ["+", "x"], [" ", "c"]],
    )
