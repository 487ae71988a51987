"""What only a machine with a GPU shows: `make gpu`. Imports the package and the benches of training."""
