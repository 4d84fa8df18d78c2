"""A table as the paper lays it out, and the same in long form: written as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Record: TypeAlias = Mapping[str, "str | float | int | None"]


@dataclass(frozen=True)
class Sheet:
    """A table, ready to be written.

    Parameters
    ----------
    name, title : str
        Name of its files; what it shows.
    spanners : tuple of (str, int)
        Headings over the columns, and how many columns each spans; empty for none.
    columns : tuple of str
    rows : tuple of tuple of str
    blocks : tuple of int
        Rows after which a rule is drawn.
    notes : tuple of str
    records : tuple of mapping
        The long form: one row a number.
    words : bool
        Whether its cells are words, set to the left.
    """

    name: str
    title: str
    spanners: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    blocks: tuple[int, ...]
    notes: tuple[str, ...]
    records: tuple[Record, ...]
    words: bool = False


def to_csv(records: Sequence[Record]) -> str:
    """Return records as CSV, a column for each key of the first; unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(records[0])
    writer.writerows([plain(value) for value in record.values()] for record in records)
    return out.getvalue()


def plain(value: str | float | int | None) -> str:
    """Return a value as text that a program reads back, numbers to nine digits; None is empty."""
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def to_markdown(sheet: Sheet) -> str:
    """Return a table as Markdown. Its spanners are repeated in each column's heading."""
    headings = [f"{over} {column}".strip() for over, column in zip(_over(sheet), sheet.columns, strict=True)]
    lines = [
        f"# {sheet.title}",
        "",
        _row(headings),
        "|---|" + ("---|" if sheet.words else "---:|") * (len(headings) - 1),
    ]
    lines += [_row(row) for row in sheet.rows]
    lines += ["", *(f"{note}  " for note in sheet.notes)]
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, all columns to the left."""
    return [_row(columns), "|---" * len(columns) + "|", *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _over(sheet: Sheet) -> list[str]:
    return [label for label, span in sheet.spanners for _ in range(span)] or [""] * len(sheet.columns)


LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "≈": r"$\approx$", "†": r"\dag{}",
    "‡": r"\ddag{}", "–": "--", "Δ": r"$\Delta$", "−": r"$-$", "✓": r"\checkmark{}", "·": r"$\cdot$", "<": r"$<$",
    ">": r"$>$",
}  # fmt: skip


def latex(text: str) -> str:
    """Return text with everything that LaTeX reads as a command, or cannot show, written so that it shows."""
    return "".join(LATEX.get(each, each) for each in text)


def to_latex(sheet: Sheet) -> str:
    """Return a table as a LaTeX float, no wider than its line; it needs the packages booktabs, amssymb and graphicx."""
    lines = [
        "% needs booktabs, amssymb and graphicx",
        r"\begin{table}",
        rf"\caption{{{latex(_caption(sheet))}}}",
        rf"\label{{tab:{sheet.name}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{l{('l' if sheet.words else 'r') * (len(sheet.columns) - 1)}}}",
        r"\toprule",
    ]
    if sheet.spanners:
        lines.append(_spanned(sheet.spanners))
    lines += [_latex_row(sheet.columns), r"\midrule"]
    for at, row in enumerate(sheet.rows):
        lines.append(_latex_row(row))
        if at in sheet.blocks:
            lines.append(r"\midrule")
    lines += [r"\bottomrule", r"\end{tabular}}", "", *(rf"{latex(note)}\\" for note in sheet.notes), r"\end{table}"]
    return "\n".join(lines) + "\n"


def _caption(sheet: Sheet) -> str:
    """Return the title with the paper's number behind it: LaTeX numbers the float itself."""
    number, dot, text = sheet.title.partition(". ")
    return f"{text} ({number} of Wu and Canedo 2026)" if dot and number.startswith("Table ") else sheet.title


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex, cells)) + r" \\"


def _spanned(spanners: Sequence[tuple[str, int]]) -> str:
    cells, rules, at = [], [], 1
    for label, span in spanners:
        cells.append(rf"\multicolumn{{{span}}}{{{'l' if at == 1 else 'c'}}}{{{latex(label)}}}")
        if label:
            rules.append(rf"\cmidrule(lr){{{at}-{at + span - 1}}}")
        at += span
    return " & ".join(cells) + r" \\ " + " ".join(rules)


def written(sheet: Sheet) -> dict[str, bytes]:
    """Return the three files of a table."""
    texts = {"csv": to_csv(sheet.records), "md": to_markdown(sheet), "tex": to_latex(sheet)}
    return {f"{sheet.name}.{suffix}": text.encode() for suffix, text in texts.items()}


def rounded(value: float, digits: int) -> str:
    """Return a number for people, with all of so many digits."""
    return f"{round(value, digits) + 0.0:.{digits}f}"  # adding 0 turns -0 into 0
