"""The pipe between a script's processes and the command that started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from et_replay.run.messages import Mailbox, send

CHAT = """
import sys
from pathlib import Path
from et_replay.run.messages import send
for number in range(200):
    send(Path(sys.argv[1]), {"rank": int(sys.argv[2]), "number": number, "text": "x" * 300})
"""


def test_messages_of_several_processes_arrive_whole_and_in_the_order_of_each() -> None:
    arrived = []
    with Mailbox() as mailbox:
        reader = Thread(target=lambda: arrived.extend(mailbox.messages()))
        reader.start()
        words = [sys.executable, "-c", CHAT, str(mailbox.path)]
        processes = [subprocess.Popen([*words, str(rank)]) for rank in range(3)]
        assert [process.wait() for process in processes] == [0, 0, 0]
        mailbox.close()
        reader.join()

    assert len(arrived) == 600
    for rank in range(3):
        numbers = [message["number"] for message in arrived if message["rank"] == rank]
        assert numbers == list(range(200))


def test_a_message_to_a_command_that_has_gone_is_lost(tmp_path: Path) -> None:
    with Mailbox() as mailbox:
        path = mailbox.path

    send(path, {"rank": 0})
    send(tmp_path / "never", {"rank": 0})

    assert not path.exists()


def test_a_message_that_could_be_torn_apart_is_refused() -> None:
    with (
        Mailbox() as mailbox,
        pytest.raises(ValueError, match=r"of 5010 bytes is longer than 4096"),
    ):
        send(mailbox.path, {"a": "x" * 5000})
