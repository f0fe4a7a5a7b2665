"""Draw the table of levers in the README as bars: Python calls of a request after each lever.

python -m benchmarks.chart        # reads benchmarks/README.md, writes benchmarks/levers.svg
"""

from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
HEADING = "## Levers"
COLOURS = {"new key": "#2f6f9f", "replay": "#e08a2e", "unguarded": "#7a9a4a"}
LABELS, SCALE, BAR, GAP, TOP = 330, 480, 11, 14, 52


def rows_of(text: str) -> list[tuple[str, list[int]]]:
    """The levers in the order of the table, and their calls in the order of `COLOURS`."""
    table = text.partition(HEADING)[2].partition("\n## ")[0]
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) >= 2 + len(COLOURS) and cells[2].isdigit():
            found.append((cells[0], [int(cell) for cell in cells[2 : 2 + len(COLOURS)]]))
    return found


def svg(rows: list[tuple[str, list[int]]]) -> str:
    """One group of bars for each row, longest scale for the largest figure."""
    most = max(calls for _, figures in rows for calls in figures)
    step = BAR * len(COLOURS) + GAP
    width, height = LABELS + SCALE + 60, TOP + step * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20" font-size="14" font-weight="bold">Python calls of one request, after each lever</text>',
    ]
    for number, (name, colour) in enumerate(COLOURS.items()):
        x = LABELS + 110 * number
        parts.append(f'<rect x="{x}" y="30" width="10" height="10" fill="{colour}"/><text x="{x + 15}" y="39">{name}</text>')
    for number, (lever, figures) in enumerate(rows):
        y = TOP + step * number
        parts.append(f'<text x="{LABELS - 10}" y="{y + step / 2 - 2:.0f}" text-anchor="end">{escape(lever)}</text>')
        for place, (calls, colour) in enumerate(zip(figures, COLOURS.values(), strict=True)):
            length, top = calls / most * SCALE, y + BAR * place
            parts.append(f'<rect x="{LABELS}" y="{top}" width="{length:.0f}" height="{BAR - 1}" fill="{colour}"/>')
            parts.append(f'<text x="{LABELS + length + 5:.0f}" y="{top + BAR - 2}" font-size="10">{calls}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    rows = rows_of((HERE / "README.md").read_text())
    if not rows:
        raise SystemExit(f"there is no table under {HEADING!r}")
    (HERE / "levers.svg").write_text(svg(rows))


if __name__ == "__main__":
    main()
