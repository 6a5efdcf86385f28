"""What is told of an error of others is one line."""

from __future__ import annotations

from et_replay.errors import first_line, headline


def test_an_error_is_told_by_its_type_and_the_first_line_of_its_text() -> None:
    assert headline(ValueError("gone wrong.\nfor a reason")) == "ValueError: gone wrong"


def test_an_error_without_text_is_told_by_its_type() -> None:
    assert headline(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_what_cannot_be_decoded_is_left_out() -> None:
    assert first_line(RuntimeError("closed by \udc80peer\ufffd")) == "closed by peer"
