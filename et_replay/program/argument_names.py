"""The text of an operator's schema in, its arguments and their names out."""

from __future__ import annotations

from functools import lru_cache


def arguments_in(schema: str) -> list[str]:
    """Return the text of each argument of a schema, keyword-only ones too, but for what it quotes.

    torch._C.parse_schema refuses types of libraries that are not loaded, so the text is split here:
    at commas outside of brackets and quotes.
    """
    arguments, argument, depth, quote = [], "", 0, ""
    for character in schema[schema.find("(") + 1 :]:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif depth == 0 and character in ",)":
            arguments.append(argument.strip())
            argument = ""
            if character == ")":
                break
        else:
            depth += (character in "([") - (character in ")]")
            argument += character
    return [each for each in arguments if each not in ("", "*")]


@lru_cache(maxsize=1024)
def argument_names(schema: str) -> tuple[str, ...]:
    """Return the argument names of a schema's text: of each the last word before a default."""
    declarations = (argument.partition("=")[0].split() for argument in arguments_in(schema))
    return tuple(words[-1] for words in declarations if words)
