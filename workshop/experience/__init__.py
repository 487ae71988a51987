"""The fleet: small authored tasks over the six domains, and the generator that runs them for real."""
