"""Messages of expected errors: one line of bounded length, whatever they quote."""

from __future__ import annotations

import pytest

from scaffe.collectives.errors import RankLost
from scaffe.errors import LayerError, MissingFile, UserError


@pytest.mark.parametrize("kind", [UserError, MissingFile, LayerError])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_what_ends_a_line_becomes_a_space(kind: type[Exception], end: str) -> None:
    assert str(kind(f"a{end}b: no such  file")) == "a b: no such  file"


def test_the_middle_of_what_is_very_long_goes() -> None:
    line = str(UserError(f"net.prototxt:3: '{'9' * 5000}' is too large: expected at most 7"))
    assert len(line) <= 1510
    assert line.startswith("net.prototxt:3: '999")
    assert line.endswith("999' is too large: expected at most 7")
    assert "9 ... 9" in line
    whole = "x" * 1500
    assert str(UserError(whole)) == whole


def test_attributes_stay() -> None:
    assert UserError("a\nb", everywhere=True).everywhere
    assert RankLost(0, [2, 3]).ranks == (2, 3)
