"""Kinds of settings that more than one subject has."""

from gateway.core import texts
from gateway.core.kinds import LocalPath, SetOf, Text, Whole

NAME = Text("a name", texts.name, texts.NAME_PATTERN)
HEADER = Text("a header name", texts.header_name, texts.HEADER_PATTERN)
FILE = LocalPath("a file path")
STATUSES = SetOf(Whole(100, 599))
