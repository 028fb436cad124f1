"""The one exception whose message is written for the person at the terminal. run.py prints it without a traceback."""


class UserError(Exception):
    """Something the user can put right: the message says what was expected, what came and what to do."""
