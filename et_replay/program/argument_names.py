"""The text of an operator's schema in, the names of its arguments out."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def argument_names(schema: str) -> tuple[str, ...]:
    """Return the argument names of a schema's text, keyword-only ones too, whatever its types are.

    torch._C.parse_schema refuses types of libraries that are not loaded, so the text is split here:
    at commas outside of brackets and quotes, each name being the last word before a default.
    """
    parts, part, depth, quote = [], "", 0, ""
    for character in schema[schema.find("(") + 1 :]:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif depth == 0 and character in ",)":
            parts.append(part.partition("=")[0].split())
            part = ""
            if character == ")":
                break
        else:
            depth += (character in "([") - (character in ")]")
            part += character
    return tuple(words[-1] for words in parts if words and words != ["*"])
