"""Durations and sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.units import format_duration, format_size, parse_duration, parse_size

DURATIONS = {"250ms": 0.25, "2s": 2.0, "1.5s": 1.5, "5m": 300.0, "24h": 86400.0, "7d": 604800.0, "0s": 0.0, "0.001s": 0.001, "007s": 7.0}
SIZES = {
    "1MiB": 1048576,
    "8KiB": 8192,
    "512KB": 512000,
    "10MB": 10_000_000,
    "1GiB": 1 << 30,
    "2GB": 2_000_000_000,
    "512B": 512,
    "512": 512,
    "0": 0,
}

FACTORS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MULTIPLES = {"B": 1, "KB": 1000, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations_are_seconds(text: str, seconds: float) -> None:
    """Each unit has its number of seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes_are_bytes(text: str, size: int) -> None:
    """KiB and its kin count in 1024, KB and its kin in 1000; a plain number is bytes."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", " 2s", "2s ", "2 s", "-2s", "+2s", "2S", "2sec", "1h30m", "1e3s", ".5s", "1.2345s", "٢s", "2s\n", "1" * 13 + "s", "nan", "inf"],
)
def test_other_spellings_are_no_durations(text: str) -> None:
    """One number, one unit, nothing around them."""
    with pytest.raises(ValueError, match="is not a duration; write for example"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["30", "0", "1.5", "2."])
def test_a_number_is_no_duration(text: str) -> None:
    """A number without a unit says what to write instead."""
    with pytest.raises(ValueError, match=rf"^{text} has no unit; write {text.rstrip('.')}s for seconds"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "1.5MiB", "1 MiB", "1mib", "1K", "-1", "1MiB\n", "٢MB", "9" * 16])
def test_other_spellings_are_no_sizes(text: str) -> None:
    """A whole number and a unit with its exact letters."""
    with pytest.raises(ValueError, match="is not a size; write for example"):
        parse_size(text)


@given(st.integers(0, 10**12 - 1), st.sampled_from(sorted(FACTORS)))
def test_a_duration_is_its_number_times_its_unit(number: int, unit: str) -> None:
    """Whole numbers are exact to the millisecond, up to twelve digits."""
    assert parse_duration(f"{number}{unit}") == number * FACTORS[unit] / 1000


@given(st.integers(0, 10**12 - 1))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    """Formatting loses nothing and takes the largest unit that fits, but writes one day as 24h."""
    text = format_duration(milliseconds / 1000)
    assert parse_duration(text) == milliseconds / 1000
    larger = [factor for factor in FACTORS.values() if factor > FACTORS[text.lstrip("0123456789")]]
    assert text in {"0s", "24h"} or not any(milliseconds % factor == 0 for factor in larger)


@given(st.integers(0, 10**15 - 1), st.sampled_from(sorted(MULTIPLES)))
def test_a_size_is_its_number_times_its_unit(number: int, unit: str) -> None:
    """Sizes are exact however large they are."""
    assert parse_size(f"{number}{unit}") == number * MULTIPLES[unit]


@given(st.integers(0, 10**14))
def test_a_formatted_size_reads_back(size: int) -> None:
    """Formatting loses nothing."""
    assert parse_size(format_size(size)) == size


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused_with_a_remedy(text: str) -> None:
    """No text makes either parser fail in another way than ValueError, nor give a negative value."""
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError as problem:
            message = str(problem)
        else:
            continue
        assert "write" in message or "finer" in message
