"""Options that are counts, for argparse."""
import argparse


def count(text):
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number of at least 1')
    return value


def counts(text):
    """Several of them, with commas in between."""
    return [count(one) for one in text.split(",")]
