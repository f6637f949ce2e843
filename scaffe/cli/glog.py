"""The flags that glog gives to every program of Caffe: removed from a command line, and obeyed or ignored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.errors import UserError

SWITCHES = frozenset({"logtostderr", "alsologtostderr", "colorlogtostderr", "log_prefix", "logbuflevel",
                      "stop_logging_if_full_disk"})  # all lines go to standard error anyway
VALUES = frozenset({"minloglevel", "log_dir", "stderrthreshold", "v", "vmodule", "max_log_size"})


def take(argv: Sequence[str]) -> list[str]:
    """The command line without glog's flags; ``-minloglevel N`` and ``-log_dir FOLDER`` take effect.

    Raises:
        UserError: a value is missing or is not what it must be.
    """
    rest, words = [], iter(argv)
    for word in words:
        name, has_value, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name.removeprefix("no") not in SWITCHES | VALUES:
            rest.append(word)
        elif name in VALUES:
            value = value if has_value else next(words, "")
            if not value:
                raise UserError(f"{word} needs a value")
            if name in _EFFECTS:
                _EFFECTS[name](value)
    return rest


def _level(value: str) -> None:
    from scaffe import log

    if not value.isdecimal():
        raise UserError(f"-minloglevel must be 0 (all), 1 (warnings) or 2 (errors), got {value!r}")
    log.set_level(int(value))


def _folder(value: str) -> None:
    from pathlib import Path

    from scaffe import log

    if not Path(value).is_dir():
        raise UserError(f"-log_dir: there is no folder {value}")
    log.keep_in(value)


_EFFECTS: dict[str, Callable[[str], None]] = {"minloglevel": _level, "log_dir": _folder}
