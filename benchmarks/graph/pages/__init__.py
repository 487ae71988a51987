"""How fast Dagster's pages are on a long history; imports the package's Dagster instance and the tests' servers."""
