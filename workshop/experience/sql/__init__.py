"""Tasks of the domain sql, and the databases that they are asked on."""
