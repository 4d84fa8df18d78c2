"""Where parts of a Parquet file begin, and that a damaged one only tells less of it."""

import random
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from invsim.traces.pages import NOWHERE, Edges, _pages, find_edges

SAMPLE = Path(__file__).parents[1] / "data" / "traces" / "native" / "payments.parquet"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three groups of 1000, 1000 and 500 rows, in pages."""
    path = tmp_path / "x.parquet"
    rows = pl.DataFrame({"number": range(2500), "odd": [each % 2 == 1 for each in range(2500)], "none": [None] * 2500})
    texts = pl.concat_str(pl.lit("a text of some length "), "number").alias("text")
    nested = pl.struct(pl.col("number").alias("inner")).alias("outer")
    rows.with_columns(texts, nested).write_parquet(path, row_group_size=1000, data_page_size=1024, statistics="full")
    return path


def test_groups_and_pages_are_found(path: Path) -> None:
    found = find_edges(path)
    assert found.groups == [0, 1000, 2000, 2500]
    assert found.pages.keys() == {"number", "odd", "none", "text", "outer.inner"}
    for name in ("number", "text"):
        for first, last in pairwise(found.groups):
            pages = [row for row in found.pages[name] if first <= row <= last]
            sizes = [stop - start for start, stop in pairwise(pages)]
            assert (pages[0], pages[-1]) == (first, last)
            assert len(sizes) > 2
            assert len(set(sizes[:-1])) == 1, "all but the last page of a group hold the same number of rows"


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "lz4", "gzip", "zstd", "brotli"])
def test_pages_do_not_depend_on_how_they_are_compressed(compression: str, path: Path, tmp_path: Path) -> None:
    rows = pl.read_parquet(path)
    rows.write_parquet(tmp_path / "y", row_group_size=1000, data_page_size=1024, compression=compression)  # type: ignore[arg-type]
    assert find_edges(tmp_path / "y") == find_edges(path)


def test_a_row_weighs_what_it_does_where_rows_weigh_most(tmp_path: Path) -> None:
    texts = pl.Series([f"{at}" for at in range(1000)] + [f"{at:0500}" for at in range(1000)])
    texts.to_frame("a").write_parquet(tmp_path / "x", row_group_size=1000)
    assert 500 <= find_edges(tmp_path / "x").weight <= 510


def test_a_trace_is_one_group() -> None:
    assert find_edges(SAMPLE).groups == [0, 24]


def test_no_row_is_in_no_group(tmp_path: Path) -> None:
    pl.DataFrame({"a": pl.Series([], dtype=pl.Int64)}).write_parquet(tmp_path / "x")
    assert find_edges(tmp_path / "x") == Edges([0], {}, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"PAR1", b"PAR1\0\0\0\0PAR1", b"PAR1" + b"\xff" * 4 + b"PAR1",
        b"PAR1" + b"\x1c" * 50_000 + (50_000).to_bytes(4, "little") + b"PAR1",
        b"PAR1\x49\xf1" + b"\xff" * 8 + b"\x7f\0" + (12).to_bytes(4, "little") + b"PAR1",
    ],
    ids=["empty", "cut", "nothing", "long", "deep", "many"],
)  # fmt: skip
def test_what_has_no_footer_tells_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    assert find_edges(tmp_path / "x") == NOWHERE


def test_a_file_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    assert find_edges(tmp_path / "x") == NOWHERE


def test_a_page_of_less_than_no_bytes_is_the_last() -> None:
    header = b"\x15\0\x15\0\x15%c\x2c\x15\x04\0\0"  # three integers, the last its bytes; then its number of rows
    about = {9: 0, 7: 3 * len(header)}
    assert _pages(3 * (header % 0), about, 100) == [100, 102, 104]
    assert _pages(3 * (header % (2 * len(header) - 1)), about, 100) == [100]


def test_whatever_is_damaged_is_borne_with(path: Path, tmp_path: Path) -> None:
    data, damaged = path.read_bytes(), tmp_path / "damaged"
    different = set()
    for seed in range(1500):
        draw, found = random.Random(seed), bytearray(data)
        start = len(data) - 2000 if seed % 2 else 0
        for _ in range(draw.choice((1, 3, 40))):
            found[draw.randrange(start, len(data))] = draw.randrange(256)
        damaged.write_bytes(found)
        edges = find_edges(damaged)
        assert edges.groups == sorted(edges.groups)
        different.add(str(edges))
    assert len(different) > 100
