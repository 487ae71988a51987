"""What only CPUs want: row counts in whole blocks, column-major weights and quick products for generation.

Imports `light_imports` only.
"""
