"""Files that hold one secret each."""

import re
from pathlib import Path

from gateway.config.kinds import Found, Reader
from gateway.runtime.local_files import LocalFileError, TooLarge, read_local

MAX_SECRET_FILE = 64 * 1024


def read_secret(reader: Reader, path: Found[str]) -> str | None:
    """The text of a secret's file, without one closing line break. Relative paths start at the configuration file's folder."""
    try:
        text = re.sub(r"\r?\n\Z", "", read_local(reader.directory / Path(path.value), MAX_SECRET_FILE).decode())
        if not text:
            raise ValueError("it is empty")
    except TooLarge:
        reader.report(path.place, f"cannot use {path.value}: it is larger than 64KiB")
    except LocalFileError as error:
        reader.report(path.place, f"cannot read {path.value}: {error}")
    except UnicodeDecodeError:
        reader.report(path.place, f"cannot use {path.value}: it is not UTF-8 text")
    except ValueError as error:
        reader.report(path.place, f"cannot use {path.value}: {error}")
    else:
        return text
    return None
