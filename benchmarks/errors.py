"""What the person at the terminal reads: the one exception written for them, printed without a traceback."""


class UserError(Exception):
    """Something the user can put right: the message says what was expected, what came and what to do."""


def first_line(error: BaseException) -> str:
    """The first line of an error that says something, to be quoted in a UserError; its type when it is silent."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
