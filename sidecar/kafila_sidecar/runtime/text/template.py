"""A chat template, compiled as the Hub's own tools compile it, whose renderings know which characters are its own.

In the same sandbox, with the same globals, filters and blocks as in transformers. Beside that every text that stands
in the template is made `OwnText` in the compiled form, and so are special tokens and well-known roles.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_join
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_eval_context
from jinja2.visitor import NodeTransformer

from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.runtime.text.provenance import OwnText, joined, own

MOST_CHARACTERS = 1 << 20

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
"""What a template may build control tokens of, as Phi's do; a role of any other name is what somebody wrote."""
_FAILURES = (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What running a template may end in."""


class ChatTemplate:
    """One template. `source` is its text."""

    def __init__(self, source: str) -> None:
        """Raises: Refused for one that is too large or can't be compiled."""
        if len(source) > MOST_CHARACTERS:
            raise Refused(f"the model's chat template has {len(source)} characters, over {MOST_CHARACTERS}")
        self.source = source
        environment = _Environment()
        try:
            self._template = environment.from_string(_Marking(environment).visit(environment.parse(source)))
        except _FAILURES as error:
            raise Refused(f"the model's chat template can't be compiled: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] = (),
        special_tokens: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        begun: str = "",
    ) -> OwnText:
        """The conversation's text, up to where the answer begins, or goes on where it has `begun`: with the content of
        the last message.

        Raises: InvalidInput when the template refuses it, or fails, or changes what the last message says.
        """
        variables = {name: own(token) for name, token in (special_tokens or {}).items()} | dict(settings or {})
        given = [_for_templates(message) for message in messages]
        try:
            text = self._template.render(
                **variables, messages=given, tools=list(tools) or None, documents=None, add_generation_prompt=not begun
            )
        except _FAILURES as error:
            raise InvalidInput(f"the model's chat template doesn't take this conversation: {error}") from error
        whole = text if isinstance(text, OwnText) else OwnText(text)
        return _up_to(whole, begun) if begun else whole


def _up_to(text: OwnText, said: str) -> OwnText:
    """The rendering as far as its last message is written, of which templates may strip the blanks around it. What the
    template itself wrote behind that is no part of it, even if it reads the same."""
    for piece in (said, said.rstrip(), said.strip()):
        at = text.rfind(piece)
        while at >= 0 and text.owns_any(at, at + len(piece)):
            at = text.rfind(piece, 0, at + len(piece) - 1)
        if at >= 0 and piece:
            return text[: at + len(piece)]
    raise InvalidInput("the model's chat template changes what an answer begins with: end with what a user says")


class _Environment(ImmutableSandboxedEnvironment):
    """transformers' environment for chat templates."""

    concat = staticmethod(joined)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
        self.filters |= {"tojson": _to_json, "join": _join}
        self.globals |= {
            "raise_exception": _raise,
            "strftime_now": lambda form: datetime.now().strftime(form),
            "dict": _Dict(),
            "namespace": _Namespace,
        }


class _GenerationBlock(Extension):
    """`{% generation %}` marks for training what the model wrote; here it is what stands in it."""

    tags = {"generation"}  # noqa: RUF012  # as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Marking(NodeTransformer):
    """Makes every text of the template an attribute of its environment, where `OwnText` can lie."""

    def __init__(self, environment: _Environment) -> None:
        self._environment = environment
        self._names: dict[str, str] = {}

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return self._marked(node.data, node.lineno)

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        return self._marked(node.value, node.lineno) if isinstance(node.value, str) else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """Keys are no texts."""
        node.node = self.visit(node.node)
        if not isinstance(node.arg, nodes.Const):
            node.arg = self.visit(node.arg)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """`~` as `+` of texts: the library joins it out of our sight."""
        texts = [nodes.Filter(self.visit(one), "string", [], [], None, None, lineno=node.lineno) for one in node.nodes]
        made: nodes.Expr = texts[0]
        for text in texts[1:]:
            made = nodes.Add(made, text, lineno=node.lineno)
        return made

    def _marked(self, text: str, line: int) -> nodes.Node:
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"own_text_{len(self._names)}"
            setattr(self._environment, name, own(text))
        return nodes.EnvironmentAttribute(name, lineno=line)


class _Dict:
    """`dict` without a way to Python's own."""

    def __call__(self, *pairs: Any, **more: Any) -> dict[Any, Any]:
        return dict(*pairs, **more)

    def fromkeys(self, keys: Any, value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """A namespace without a way to Python's internals."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a template may not set {name!r}")
        super().__setitem__(name, value)


def _for_templates(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates see it: a well-known role counts as theirs, and thoughts go by both names they have."""
    role = message.get("role")
    made = {**message, "role": own(role) if role in _ROLES else role}
    thoughts = message.get("reasoning_content")
    return made if thoughts is None else {"thinking": thoughts, **made}


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_eval_context
def _join(context: EvalContext, value: Any, between: str = "", attribute: Any = None) -> str:
    return str(do_join(context, value, between if isinstance(between, OwnText) else OwnText(between), attribute))
