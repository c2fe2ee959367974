"""A request's `format` as a grammar for llguidance: everything that may be refused before anything is built. Pure."""

import json
from typing import Any

from kafila_sidecar.errors import InvalidInput

MOST_SCHEMA_BYTES = 256 << 10
ANY_OBJECT = '{"type":"object"}'  # what `format: "json"` means to Ollama's own grammar

_WHITESPACE = r"\x20|\x0D?\x0A[\x20\x09]{0,40}"
"""Between JSON's signs: none, a blank, or a line's end and what the next line is indented by. A model that is made to
write JSON may go on with blanks for ever where it is let."""
_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": _WHITESPACE, "json_allow_general_unicode_escapes": True}
_LEAD = r"start: /[\x20\x0A]{0,4}/ @answer"
"""After a thought a model is used to an empty line before its answer."""


def grammar_of(wanted: str, *, strict: bool) -> str:
    """What llguidance builds a matcher of; "json", or a JSON schema as the client wrote it.

    strict: a keyword that can't be held to is a mistake; else it is passed over, as by Ollama.

    Raises: InvalidInput for what is neither, or too large.
    """
    schema = _schema(ANY_OBJECT if wanted == "json" else wanted)
    given = schema.get("x-guidance")  # llguidance's own word, by which a client may ask for other blanks
    options = (
        _OPTIONS | (given if isinstance(given, dict) else {}) | {"lenient": not strict, "coerce_one_of": not strict}
    )
    answer = {"name": "answer", "json_schema": {**schema, "x-guidance": options}}
    return json.dumps({"grammars": [answer]}, ensure_ascii=False)


def after_blanks(grammar: str) -> str:
    """What `grammar_of` made, where a few blanks may come first."""
    answer = json.loads(grammar)["grammars"]
    return json.dumps({"grammars": [{"lark_grammar": _LEAD}, *answer]}, ensure_ascii=False)


def _schema(text: str) -> dict[str, Any]:
    if (size := len(text.encode())) > MOST_SCHEMA_BYTES:
        raise InvalidInput(f"the schema in `format` has {size} bytes, over {MOST_SCHEMA_BYTES}: make it smaller")
    try:
        schema = json.loads(text)
    except RecursionError:
        raise InvalidInput("the schema in `format` is nested too deeply: make it flatter") from None
    except ValueError as error:
        raise InvalidInput(f"the schema in `format` is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InvalidInput(f'invalid format: {text[:80]}; expected "json" or a valid JSON Schema object')
    return schema
