"""Short conversations that any language model of code should find likely: what a model is listened to with."""

from collections.abc import Mapping

SANE: tuple[tuple[Mapping[str, str], ...], ...] = tuple(
    ({"role": "user", "content": question}, {"role": "assistant", "content": reply})
    for question, reply in (
        (
            "Write a Python function that returns the sum of the numbers in a list.",
            "def total(numbers):\n    result = 0\n    for number in numbers:\n        result += number\n"
            "    return result",
        ),
        (
            "Write a SQL query that counts the orders of each customer.",
            "SELECT customer_id, COUNT(*) AS orders\nFROM orders\nGROUP BY customer_id\nORDER BY customer_id;",
        ),
        (
            "Write a JavaScript function that reverses a string.",
            "function reverse(text) {\n  return text.split('').reverse().join('');\n}",
        ),
        (
            "Read a JSON file in Python and print the names in it.",
            "import json\n\nwith open('people.json') as file:\n    people = json.load(file)\n"
            "for person in people:\n    print(person['name'])",
        ),
        (
            "Why does this code raise a KeyError?\n\nages = {'ada': 36}\nprint(ages['bob'])",
            "The dictionary has no key 'bob'. Use ages.get('bob') to get None instead.",
        ),
        (
            "Compute the mean of each column of a NumPy array.",
            "import numpy as np\n\nvalues = np.array([[1.0, 2.0], [3.0, 4.0]])\nprint(values.mean(axis=0))",
        ),
        (
            "Explain what a list is.",
            "A list is an ordered collection of values. You can add values to it and read them by position.",
        ),
        (
            "Write a Python class for a stack with push and pop.",
            "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
            "        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop()",
        ),
    )
)
