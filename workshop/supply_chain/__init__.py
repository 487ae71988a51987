"""What this project is made of: bills of materials, known vulnerabilities, a wheel that anybody can build again.

The tools have an environment of their own (`make supply-env`), so that they are in no bill.
"""
