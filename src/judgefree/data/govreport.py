"""GovReport (ccdv/govreport-summarization): reports of US agencies and their summaries.

The hub has three splits with the columns report and summary. L-Eval has 14 of the test documents in one file (columns input
and outputs, a list of one reference), enough to try everything on real reports without the hub; `validation` and `test`
are then held out of it.
"""

from pathlib import Path
from typing import Any

from judgefree.config_texts import GovReportData
from judgefree.data.rows import BadRow, text_of
from judgefree.data.sources import Source, read
from judgefree.data.texts import clean, common

LEVAL = ("leval_gov_report_summ.jsonl", "gov_report_summ.jsonl", "LEval/Generation/gov_report_summ.jsonl")


def load(settings: GovReportData, root: Path) -> list[Source]:
    dataset = (settings.id, settings.revision)
    if settings.layout == "leval":
        mirror = (f"govreport/{LEVAL[0]}",)
        return [read("train", "govreport/leval", dataset, LEVAL, mirror, root, settings.train_rows)]
    return [
        read(
            split,
            f"govreport/{split}",
            dataset,
            (f"document/{split}-*.parquet", f"{split}-*.parquet", f"{split}.jsonl"),
            (f"govreport/document/{split}-*.parquet", f"govreport/{split}-*.parquet", f"govreport/{split}.jsonl"),
            root,
            settings.train_rows if split == "train" else None,
        )
        for split in ("train", "validation", "test")
    ]


def parse(fields: dict[str, Any], most: int) -> dict[str, Any]:
    """The common form of a raw row, the report cut to `most` words. Raises BadRow for an empty text, and for a summary
    that has more words than the whole report: then the two were mixed up or the report is a fragment."""
    report, summary = clean(text_of(_named(fields), "report")), clean(text_of(_named(fields), "summary"))
    for name, text in (("report", report), ("summary", summary)):
        if not text:
            raise BadRow(f"empty: {name}")
    words, of = len(summary.split()), len(report.split())
    if words > of:
        raise BadRow(f"summary longer than report: {words} words of {of}")
    return common(report, summary, most)


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    """L-Eval's columns by GovReport's names."""
    if "input" not in fields:
        return fields
    outputs = fields.get("outputs")
    return {"report": fields["input"], "summary": outputs[0] if isinstance(outputs, list) and outputs else None}
