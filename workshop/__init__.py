"""What made the things that ship in `resources/` (the experience, the base model), and what tells what we are made of.

It imports the package; nothing in the package imports it, and the wheel does not hold it.
"""
