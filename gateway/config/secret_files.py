"""Files that hold one secret each."""

import re
from pathlib import Path

from gateway.config.kinds import Found, Reader

MAX_SECRET_FILE = 64 * 1024


def read_secret(reader: Reader, path: Found[str]) -> str | None:
    """The text of a secret's file, without one closing line break. Relative paths start at the configuration file's folder."""
    try:
        with (reader.directory / Path(path.value)).open("rb") as file:
            raw = file.read(MAX_SECRET_FILE + 1)
        if len(raw) > MAX_SECRET_FILE:
            raise ValueError("it is larger than 64KiB")
        text = re.sub(r"\r?\n\Z", "", raw.decode())
        if not text:
            raise ValueError("it is empty")
    except OSError as error:
        reader.report(path.place, f"cannot read {path.value}: {error.strerror}")
    except UnicodeDecodeError:
        reader.report(path.place, f"cannot use {path.value}: it is not UTF-8 text")
    except ValueError as error:
        reader.report(path.place, f"cannot use {path.value}: {error}")
    else:
        return text
    return None
