"""Who answers: models with adapters, prompts, endpoints, earlier answers.

Imports the schema only.
"""
