"""Files that an answer needs or owes, told from prompt and answer alone."""

import pytest

from capibara_assets.datasets.kinds.files_needed import unnamed_files, unwritten_files
from capibara_assets.datasets.kinds.sufficiency import why_insufficient, why_unpredictable


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ("import pandas as pd\ndf = pd.read_csv('step2.csv')", ["step2.csv"]),
        ("import numpy as np\nnp.load('out/part.npy')", ["out/part.npy"]),
        ("PATH = 'seen.json'\nimport json\njson.load(open(PATH))", ["seen.json"]),
        ("from pathlib import Path\nPath('a.txt').read_text()", ["a.txt"]),
        ("from pathlib import Path\nwith Path('a.txt').open('rb') as file: file.read()", ["a.txt"]),
        ("with open('log.txt', 'w') as file: file.write('x')", []),
        ("open('log.txt', mode='a').write('x')\nopen('log.txt').read()", []),  # its own
        ("import pandas as pd\npd.read_csv('data/sales.csv').to_csv('sums.csv')", []),  # the prompt names it
        ("import pandas as pd\npd.read_csv('https://example.org/a.csv')", []),  # a place, whoever reads it
        ("print('see notes.txt')", []),
        ("open(name).read()", []),
        ("open('a.csv'", []),
    ],
)
def test_python_reads_files_that_its_prompt_names(answer: str, missing: list[str]) -> None:
    assert unnamed_files("python", "Write Python code.\nSum the amounts in sales.csv.", answer) == missing


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ("const fs = require('fs');\nfs.readFileSync('seen.json', 'utf8');", ["seen.json"]),
        ("const fs = require('fs');\nfs.createReadStream('seen.json');", ["seen.json"]),
        ("const fs = require('fs');\nfs.writeFileSync('a.txt', '');\nfs.readFileSync('a.txt');", []),
        ("read(`${folder}/a.txt`)", []),
    ],
)
def test_javascript_too(answer: str, missing: list[str]) -> None:
    assert unnamed_files("javascript", "Write JavaScript.", answer) == missing


def test_a_file_of_an_earlier_step_makes_a_prompt_insufficient_and_an_output_unpredictable() -> None:
    code = "import csv\nprint(list(csv.reader(open('cleaned.csv'))))"
    assert why_insufficient("python", "Show the rows.", code) == "files that the prompt does not name: cleaned.csv"
    assert why_insufficient("python", "Show the rows of `cleaned.csv`.", code) is None
    asked = f"What does this print?\n\nCode:\n{code}"
    assert why_unpredictable("python", asked) == "files that the prompt does not name: cleaned.csv"


@pytest.mark.parametrize(
    ("task", "answer", "missing"),
    [
        (
            'Clean it and save the result in "Permits.csv"',
            "df.columns.to_series().to_csv('names.csv')",
            ["Permits.csv"],
        ),
        ("Write your predictions into results.csv, with a column ID", "df.to_csv('results.csv')", []),
        ("Write the values to CSV files (named degree_10.csv, ..)", "to_csv(f'degree_{n}.csv')", []),
        ("Export the table as report.html.", "OUT = Path('report').with_suffix('.html')", []),
        ("Read sales.csv and print the sum.", "print(1)", []),
        ("Save the sum; the input is in sales.csv.", "print(1)", []),
    ],
)
def test_a_task_asks_for_files_by_name(task: str, answer: str, missing: list[str]) -> None:
    assert unwritten_files(task, answer) == missing
