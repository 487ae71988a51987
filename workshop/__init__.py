"""What made the things that ship in `resources/`: the experience and the base model.

It imports the package; nothing in the package imports it, and the wheel does not hold it.
"""
