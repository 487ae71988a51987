"""Repairs that need to have seen the data of a file, each with a sound neighbour."""

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.worth.unseen_data import UNSEEN_DATA, WRITES, needs_unseen_data
from capibara_assets_tests.datasets.worth.test_worth import candidate

READ = "import pandas as pd\ndata = pd.read_csv('gdp.csv', index_col='country')"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("data.columns = data.columns.str.strip('gdpPercap_').astype(int)", UNSEEN_DATA),
        ("data.columns = data.columns.str.strip('country').astype(int)", None),  # which the prompt shows
        ("data['per_head'] = 1\ndata = data[['per_head']]", None),  # which it makes itself
        ("data = data.loc[data['continent'] == 1]", UNSEEN_DATA),
        ("data['Per'] = data['Per'].str.title()", UNSEEN_DATA),  # made of itself
        ("data = data.loc[:, 'mpg':'car']", UNSEEN_DATA),
        ("to_drop = ['Shelfmarks']\ndata = data.drop(to_drop)", UNSEEN_DATA),
        ("data = data.drop(['countr'])", UNSEEN_DATA),  # a part of a word that the prompt shows
        ("data.columns = ['land', 'year']\ndata = data[['land']]", None),  # which it names itself
        ("print('nothing of the data', len(data))", None),
        ("open('gdp.csv', 'w').write('country,1962')", WRITES),
    ],
)
def test_python(answer: str, why: str | None) -> None:
    asked = prompts.repair("python", "", "data.loc['Italy', 1962]", "KeyError: 1962", [READ])
    assert needs_unseen_data(candidate("repair", answer, asked, failing="data.loc['Italy', 1962]")) == why
    assert needs_unseen_data(candidate("repair", answer, asked, failing="x", derived="bug:wrong_key")) is None
    inline = asked.replace("'gdp.csv'", "io.StringIO(text)")
    assert needs_unseen_data(candidate("repair", answer, inline, failing="x")) in (None, WRITES)


def test_a_library_that_is_patched() -> None:
    asked = prompts.repair("javascript", "", "qs.parse('a[]')", "Error: expected []", ["const qs = require('qs')"])
    patch = "fs.writeFileSync(f, fs.readFileSync(f, 'utf8').replace('a === 1', 'a === 2'));"
    assert needs_unseen_data(candidate("repair", patch, asked, "javascript", failing="x")) == WRITES
    assert needs_unseen_data(candidate("repair", "qs.parse('a[]', options)", asked, "javascript", failing="x")) is None
