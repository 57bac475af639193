"""Headers of unknown logs are learned from their lines."""

import pytest

from ml.templates.layout import learned

# (two lines of one system, what their messages are): formats of systems of many kinds
SYSTEMS = [
    ("2015-10-18 18:01:47,978 INFO [main] a.b.Master: Created master {n}", "Created master {n}"),
    ("17/06/09 20:10:40 INFO executor.Backend: Found block {n}", "Found block {n}"),
    ("13468{n} node-246 unix.hw state.unavailable 107780474{n} 1 boot (command {n})", "boot (command {n})"),
    ("[10.30 16:49:0{n}] chrome.exe - host.example.com:80 close, {n} bytes", "host.example.com:80 close, {n} bytes"),
    ("api.log.1.2017-05-16 2017-05-16 00:00:0{n}.008 25746 INFO nova.api [req-3 - -] [instance: {n}] up", "[instance: {n}] up"),
    ("Jun 14 15:16:0{n} combo sshd(pam_unix)[1993{n}]: check pass {n}", "check pass {n}"),
    ("03-17 16:13:38.81{n}  1702  2395 D WindowManager: wtoken {n}", "wtoken {n}"),
    ("20171223-22:15:29:60{n}|Step_LSC|30002312|onStand {n} | x", "onStand {n} | x"),
    ("[Sun Dec 04 04:47:4{n} 2005] [error] child {n} failed", "child {n} failed"),
    ("2016-09-28 04:30:3{n}, Info                  CBS    Loaded stack {n}", "Loaded stack {n}"),
    ("- 111783857{n} 2005.06.03 R02-M1 2005-06-03-15.42.50.67587{n} R02-M1 RAS KERNEL INFO cache error {n}", "cache error {n}"),
    ("no header {n} at all", "no header {n} at all"),
]


@pytest.mark.parametrize(("line", "message"), SYSTEMS)
def test_the_message_is_what_stands_behind_the_header(line, message):
    lines = [line.replace("{n}", str(n)) for n in range(10)]
    layout = learned(lines)
    assert [layout.message(each) for each in lines] == [message.replace("{n}", str(n)) for n in range(10)]


def test_a_line_without_the_header_is_kept_whole():
    layout = learned([f"2024-01-01 10:00:0{n} INFO up" for n in range(9)])
    assert layout.message("  continued here") == "continued here"


def test_nothing_is_learned_from_nothing():
    assert learned([]).message("x y") == "x y"
    assert learned(["", "  "]).message("x y") == "x y"
