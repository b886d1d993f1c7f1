"""What error messages share."""


def shown(value):
    """A wrong argument in a message: its repr if that is short, else its type."""
    text = repr(value)
    if len(text) <= 40 and "\n" not in text:
        return text
    return f"of type {type(value).__name__}"
