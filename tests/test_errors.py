"""What is told of an error of others is one line."""

from __future__ import annotations

from json import JSONDecodeError

from et_replay.errors import first_line, headline, one_line


def test_an_error_is_told_by_its_type_and_the_first_line_of_its_text() -> None:
    assert headline(ValueError("gone wrong.\nfor a reason")) == "ValueError: gone wrong"


def test_an_error_without_text_is_told_by_its_type() -> None:
    assert headline(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_an_error_of_a_module_is_told_with_it_or_without() -> None:
    error = JSONDecodeError("no value", "", 0)
    assert headline(error) == "json.decoder.JSONDecodeError: no value: line 1 column 1 (char 0)"
    assert headline(error, qualified=False) == "JSONDecodeError: no value: line 1 column 1 (char 0)"


def test_the_whole_text_of_an_error_is_told_on_one_line() -> None:
    error = ValueError("gone wrong\n  for a reason.")
    assert one_line(error) == "gone wrong for a reason"
    assert headline(error, whole=True) == "ValueError: gone wrong for a reason"


def test_what_cannot_be_decoded_is_left_out() -> None:
    assert first_line(RuntimeError("closed by \udc80peer\ufffd")) == "closed by peer"
