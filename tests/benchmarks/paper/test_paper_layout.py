"""What a table of the paper looks like in LaTeX and Markdown, and the order of its names."""

import pandas as pd

from benchmarks.paper import layout
from benchmarks.paper.layout import PaperTable, escaped_latex, latex, markdown


def test_latex_escapes_what_latex_would_read():
    assert escaped_latex(r"a_b & 50 % of $x$ #1 {~^\<>|}") == (
        r"a\_b \& 50 \% of \$x\$ \#1 \{\textasciitilde{}\textasciicircum{}\textbackslash{}\textless{}\textgreater{}"
        r"\textbar{}\}"
    )
    shown = pd.DataFrame([("goose_no_bigram", "-2.9 %, a & b")], columns=["method", "95 %"])
    text = latex(PaperTable("t", "Title & 100 %", shown, shown, ["note_1: 5 %"]))
    assert r"goose\_no\_bigram & -2.9 \%, a \& b \\" in text
    assert r"\caption{Title \& 100 \%}" in text
    assert r"method & 95 \% \\" in text
    assert r"\par\footnotesize note\_1: 5 \%" in text
    assert r"\begin{tabular}{lr}" in text


def test_a_table_longer_than_a_page_becomes_a_longtable():
    shown = pd.DataFrame([("goose_x", "1")] * 50, columns=["method", "x"])
    text = latex(PaperTable("t", "T", shown, shown, ["a note"]))
    assert r"\begin{longtable}{lr}" in text
    assert r"\begin{table}" not in text
    assert text.count("goose\\_x & 1") == 50
    assert text.index(r"\end{longtable}") < text.index("a note")


def test_markdown_keeps_a_bar_inside_a_cell():
    shown = pd.DataFrame([("a|b", "1")], columns=["method", "x"])
    assert r"| a\|b | 1 |" in markdown(PaperTable("t", "T", shown, shown))


def test_names_in_order_and_unknown_ones_last():
    assert layout._ordered({"goose", "zzz", "pld", "pld[n=2]", "ar"}, layout.METHODS) == [
        "ar",
        "pld",
        "pld[n=2]",
        "goose",
        "zzz",
    ]
