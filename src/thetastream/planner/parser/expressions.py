"""Predicate text to the planner's tree.

The parser's habit of translating functions between dialects is switched off, so a call keeps the
name it was written with. Every node is checked against a list, and operators that stand without
parentheses are checked against Spark's precedence: where the parser would group them otherwise than
Spark, the text is refused rather than misread.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.errors import SqlglotError

from thetastream.durations import interval_length
from thetastream.errors import ParseError, PredicateError, RefusedExpressionError
from thetastream.planner import expression as tree
from thetastream.planner.expression import Level
from thetastream.planner.functions import refusal, words
from thetastream.planner.literals import read_number
from thetastream.planner.names import Names, Part
from thetastream.planner.parser.texts import check_text

MAX_TOKENS = 6_000
"""What the parser takes about half a second for."""
MAX_INTERVAL = 500
"""Characters of an interval's text."""
MAX_TYPE_DIGITS = 4
"""Of a number in the name of a type, such as DECIMAL(38, 18)."""
MAX_DEPTH = 200
"""Deeper trees would meet Python's recursion limit somewhere inside the parser or the renderer."""


MAX_FRAMES = 20
"""Operations inside each other whose operands are looked at: each costs a copy of all below it."""


class PlainSpark(Spark):
    """Spark's dialect with every function call left as it is written."""

    class Tokenizer(Spark.Tokenizer):
        # Since Spark 4 a doubled quote is a quote.
        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parser
            for name, parser in Spark.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")
        }
        NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
            name: parser
            for name, parser in Spark.Parser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in ("CASE", "IF")
        }

    class Generator(Spark.Generator):  # type: ignore[misc, valid-type]
        TYPE_MAPPING = {  # noqa: RUF012
            **Spark.Generator.TYPE_MAPPING,
            exp.DataType.Type.TIME: "TIME",
        }


_UNITS = words("year quarter month week day dayofyear hour minute second millisecond microsecond")
_WITH_UNIT = words("timestampadd timestampdiff dateadd datediff date_add date_diff")
"""Functions whose first argument may be a unit of time, which looks like a column."""

_INTERNAL = re.compile(r"(s\d+|[agm])_\d+|newest|window", re.IGNORECASE)
"""Names of columns between a join and what comes after it."""

_LEVELS: dict[type[Any], Level] = {
    exp.Or: Level.OR,
    exp.And: Level.AND,
    exp.Not: Level.NOT,
    exp.Is: Level.PREDICATE,
    exp.In: Level.PREDICATE,
    exp.Between: Level.PREDICATE,
    exp.Like: Level.PREDICATE,
    exp.ILike: Level.PREDICATE,
    exp.RegexpLike: Level.PREDICATE,
    exp.Escape: Level.PREDICATE,
    exp.NullSafeEQ: Level.PREDICATE,
    exp.NullSafeNEQ: Level.PREDICATE,
    exp.EQ: Level.COMPARISON,
    exp.NEQ: Level.COMPARISON,
    exp.LT: Level.COMPARISON,
    exp.LTE: Level.COMPARISON,
    exp.GT: Level.COMPARISON,
    exp.GTE: Level.COMPARISON,
    exp.BitwiseOr: Level.BIT_OR,
    exp.BitwiseXor: Level.BIT_XOR,
    exp.BitwiseAnd: Level.BIT_AND,
    exp.BitwiseLeftShift: Level.SHIFT,
    exp.BitwiseRightShift: Level.SHIFT,
    exp.Add: Level.ADDITIVE,
    exp.Sub: Level.ADDITIVE,
    exp.DPipe: Level.ADDITIVE,
    exp.Mul: Level.MULTIPLICATIVE,
    exp.Div: Level.MULTIPLICATIVE,
    exp.IntDiv: Level.MULTIPLICATIVE,
    exp.Mod: Level.MULTIPLICATIVE,
    exp.Neg: Level.UNARY,
    exp.BitwiseNot: Level.UNARY,
}

_OPERATIONS: dict[type[Any], str] = {
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.Bracket: "[]",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseNot: "~",
    exp.In: "in",
    exp.Is: "is",
    exp.Case: "case",
    exp.If: "if",
    exp.Like: "like",
    exp.ILike: "like",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.Trim: "trim",
    exp.StrPosition: "position",
    exp.TryCast: "try_cast",
    exp.Collate: "collate",
    exp.Literal: "literal",
    exp.HexString: "literal",
    exp.RawString: "literal",
    exp.Concat: "literal",
    exp.Null: "literal",
}
"""What the planner calls an operation that is not a function call."""

_OTHER_NODES: tuple[type[Any], ...] = (
    exp.Column, exp.Identifier, exp.Dot, exp.Paren, exp.Tuple, exp.Literal, exp.Boolean, exp.Null,
    exp.Anonymous, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef,
    exp.Interval, exp.IntervalSpan, exp.Var, exp.Case, exp.If, exp.Lambda, exp.Bracket,
    exp.HexString, exp.RawString, exp.Concat, exp.Extract, exp.Substring, exp.Trim,
    exp.StrPosition, exp.Collate,
)  # fmt: skip

_COMPARISONS: dict[type[Any], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}

_WHY_NOT: tuple[tuple[tuple[type[Any], ...], str, str], ...] = (
    ((exp.Query, exp.Subquery, exp.Exists), "a subquery", "join the other data first"),
    ((exp.Window,), "a window function", "compute it before the join"),
    ((exp.Star,), "*", "name the columns"),
    ((exp.Placeholder, exp.Parameter, exp.SessionParameter), "a parameter", "write the value"),
    ((exp.Block, exp.Semicolon), "more than one statement", "give one expression"),
    ((exp.Alias, exp.Aliases), "a name after the expression", "leave the name out"),
    ((exp.Distinct, exp.Filter, exp.AggFunc), "an aggregate", "aggregate before or after the join"),
)


def parse_predicate(text: str, names: Names, functions: Iterable[str] = ()) -> tree.Expr:
    """The predicate as a tree with its columns resolved; raises a PredicateError with a caret."""
    if not text.strip():
        raise ParseError("the predicate is empty", text=text or " ", hint='give "true" for all')
    check_text(text, Reader.noun)
    reader = Reader(text, names, tuple(functions))
    try:
        result = reader.read()
        same = reader.read_again(result) == result
    except RecursionError:
        raise reader.too_deep() from None
    if not same:
        raise RefusedExpressionError(
            "this expression cannot be rebuilt without changing its meaning",
            text=text,
            end=len(text),
            hint="write it in a simpler way, or compute it as a column before the join",
        )
    return result


class Reader:
    """One text on its way through the parser, the checks and the conversion."""

    noun = "predicate"
    place = "join predicate"
    wanted = "give one Boolean expression, as in a WHERE clause"

    def __init__(self, text: str, names: Names, functions: tuple[str, ...]) -> None:
        self.text = text
        self.names = names
        self.functions = functions
        self.source = text
        """What the parser sees: the text, with anything that it would not know blanked out."""
        self._frames = 0
        self._closing: list[tuple[int, int]] = []
        self._spans: dict[int, tuple[exp.Expr, int, int]] = {}

    def read(self) -> tree.Expr:
        root = self._parse()
        self._vet(root)
        return self._convert(root)

    def read_again(self, expr: tree.Expr) -> tree.Expr:
        """What is read of a tree's own text: the same tree, if the text says all of it."""

        def full_name(column: tree.Column) -> str:
            spec = self.names.columns[column.stream][column.index]
            path = (self.names.streams[column.stream], spec.name, *column.fields)
            return ".".join(map(tree.quote, path))

        return Reader(tree.render(expr, full_name), self.names, self.functions).read()

    def _parse(self) -> exp.Expr:
        dialect = PlainSpark()
        try:
            tokens = dialect.tokenize(self.source)
            count_tokens(tokens, self.text, self.noun)
            found = dialect.parser().parse(tokens, self.source)
            root = found[0] if len(found) == 1 else exp.Block(expressions=found)
            if root is None:
                raise SqlglotParseError("nothing but comments")
        except SqlglotParseError as error:
            start, end = self._error_span(error)
            problem = error.errors[0]["description"] if error.errors else "not an expression"
            if problem.startswith("Required keyword"):
                problem = "something is missing here"
            raise ParseError(
                f"the {self.noun} is not in Spark SQL: {problem.rstrip('.').lower()}",
                text=self.text,
                start=start,
                end=end,
                hint=self.wanted,
            ) from None
        except SqlglotError:
            quote = max(self.text.rfind(mark) for mark in "'\"`")
            raise ParseError(
                f"the {self.noun} has a quote or a comment that does not end",
                text=self.text,
                start=max(quote, 0),
                hint="close it",
            ) from None
        except RecursionError:
            raise self.too_deep() from None
        for node in root.find_all(exp.Anonymous):
            unit = node.expressions[0] if len(node.expressions) == 3 else None
            named = str(node.this).casefold() in _WITH_UNIT
            if named and isinstance(unit, exp.Column) and unit.name.casefold() in _UNITS:
                unit.replace(exp.Var(this=unit.name))
        self._closing = _closing(tokens)
        return root

    def too_deep(self) -> ParseError:
        return ParseError(
            f"the {self.noun} is nested too deeply", text=self.text, hint="simplify it"
        )

    def _error_span(self, error: SqlglotParseError) -> tuple[int, int]:
        if not error.errors:
            return 0, len(self.text)
        first = error.errors[0]
        lines = self.text.split("\n")[: int(first["line"]) - 1]
        end = sum(len(line) + 1 for line in lines) + int(first["col"])
        end = max(1, min(end, len(self.text)))
        return max(0, end - max(1, len(first["highlight"] or ""))), end

    # -- checks ---------------------------------------------------------------------------------

    def _vet(self, root: exp.Expr) -> None:
        stack: list[tuple[exp.Expr, int]] = [(root, 0)]
        while stack:
            node, depth = stack.pop()
            # Long chains of AND and OR lean to the left and are walked without recursion.
            chain = isinstance(node, (exp.And, exp.Or))
            if depth > MAX_DEPTH:
                raise self.too_deep()
            self._vet_node(node)
            for child in node.iter_expressions():
                same = chain and type(child) is type(node)
                stack.append((child, depth if same else depth + 1))

    def _vet_node(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Anonymous):
            name = node.this if isinstance(node.this, str) else ""
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                self._refuse(node, "a function name of this form", "call the function by its name")
            problem = refusal(name, len(node.expressions), self.functions)
            if problem is not None:
                self._raise(node, *problem)
        elif isinstance(node, exp.RegexpLike):
            problem = refusal("rlike", 2, self.functions)
            if problem is not None:
                self._raise(node, *problem)
        elif not isinstance(node, (*_LEVELS, *_OTHER_NODES)):
            problem = None
            if isinstance(node, exp.Func):
                problem = refusal(node.sql_name(), 0)
            if problem is None or isinstance(node, (exp.Exists, exp.AggFunc)):
                self._refuse_kind(node)
            self._raise(node, *problem)
        if isinstance(node, exp.Lambda):
            self._vet_lambda(node)
        if isinstance(node, exp.In) and not node.expressions:
            self._refuse_kind(node.args.get("query") or node)
        if isinstance(node, exp.Dot) and not isinstance(node.expression, exp.Identifier):
            self._refuse(node, "this name", "call the function by its bare name")
        if (
            isinstance(node, exp.DataType)
            and node.this == exp.DataType.Type.TIME
            and node.expressions
        ):
            # The parser would drop the precision, and with it the meaning.
            self._refuse(node, "a cast to a TIME with a precision", "cast to TIME")
        if isinstance(node, exp.DataTypeParam) and len(node.name) > MAX_TYPE_DIGITS:
            self._refuse(node, "a type of this size", "Spark's decimals have at most 38 digits")
        if isinstance(node, exp.Literal) and not node.is_string and not str(node.this).isascii():
            self._refuse(node, "a number in digits other than 0 to 9", "write it with these")
        if isinstance(node, exp.Interval) and not isinstance(node.this, exp.Literal):
            self._refuse(node, "an interval that is not a literal", "use make_dt_interval()")
        self._vet_operands(node)

    def _vet_lambda(self, node: exp.Expr) -> None:
        """Refuse variables that would capture a column where the text is rebuilt."""
        variables = {item.name.casefold() for item in node.expressions}
        for item in node.expressions:
            if self.names.stream(item.name) is not None or _INTERNAL.fullmatch(item.name):
                self._raise(
                    item,
                    f"the variable {item.name!r} of a lambda has the name of a stream or of a"
                    " column that is used inside",
                    "give the variable another name",
                )
        for column in node.this.find_all(exp.Column):
            if column.parts[0].name.casefold() in variables:
                # The parser tells names apart by case, Spark does not unless it is told to.
                self._raise(
                    column,
                    f"{column.parts[0].name!r} and the variable of the lambda differ in case only",
                    "write the variable in the same way everywhere, or name the column's stream",
                )

    def _vet_operands(self, node: exp.Expr) -> None:
        level = _LEVELS.get(type(node))
        if isinstance(node, exp.Collate):
            level = Level.UNARY
        if level is None:
            return
        left, right = node.args.get("this"), node.args.get("expression")
        unary = isinstance(node, (exp.Neg, exp.Not, exp.BitwiseNot))
        missing = left is None or (
            right is None and not unary and not isinstance(node, (exp.In, exp.Between))
        )
        if missing:
            self._raise(node, "an operator lacks an operand", "complete the expression", ParseError)
        if isinstance(node, exp.Escape):
            # LIKE ... ESCAPE is one operator that the parser splits in two.
            return
        chains = level in (Level.AND, Level.OR)
        for side, child in ((0, left), (1, right)):
            if not isinstance(child, exp.Expr):
                continue
            # Comparison and IS, IN, LIKE, BETWEEN do not chain in Spark the way they do elsewhere.
            loose = unary or chains or (side == 0 and level >= Level.BIT_OR)
            if _level(child) < level or (_level(child) == level and not loose):
                self._raise(
                    node,
                    "without parentheses this can be read in two ways",
                    "put parentheses around the part that comes first",
                )

    def _refuse_kind(self, node: exp.Expr) -> NoReturn:
        for kinds, what, hint in _WHY_NOT:
            if isinstance(node, kinds):
                self._refuse(node, what, hint)
        what = re.sub(r"(?<!^)(?=[A-Z])", " ", type(node).__name__).lower()
        self._refuse(node, f"this construct ({what})", "write it in another way")

    def _refuse(self, node: exp.Expr, what: str, hint: str) -> NoReturn:
        self._raise(node, f"{what} is not allowed in a {self.place}", hint)

    def _raise(
        self,
        node: exp.Expr,
        what: str,
        hint: str,
        kind: type[PredicateError] = RefusedExpressionError,
    ) -> NoReturn:
        start, end = self._span(node)
        raise kind(what, text=self.text, start=start, end=end, hint=hint)

    # -- conversion -----------------------------------------------------------------------------

    def _convert(self, node: exp.Expr) -> tree.Expr:
        start, end = self._span(node)
        span = {"start": start, "end": end}
        while isinstance(node, exp.Paren):
            node = node.this
        special = self._special(node)
        if special is not None:
            return special
        if isinstance(node, (exp.And, exp.Or)):
            kind = type(node)
            items = tuple(self._convert(item) for item in _flatten(node, kind))
            return (tree.And if kind is exp.And else tree.Or)(items=items, **span)
        if _path(node) is not None:
            return self.names.resolve(self._parts(node), self.text)
        if isinstance(node, exp.Boolean):
            return tree.Boolean(value=bool(node.this), **span)
        if isinstance(node, exp.Not):
            return tree.Not(expr=self._convert(node.this), **span)
        if type(node) in _COMPARISONS:
            return tree.Comparison(
                op=_COMPARISONS[type(node)],
                left=self._convert(node.this),
                right=self._convert(node.expression),
                **span,
            )
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            ends = [self._convert(node.args[name]) for name in ("this", "low", "high")]
            return tree.Between(expr=ends[0], low=ends[1], high=ends[2], **span)
        if isinstance(node, (exp.Add, exp.Sub)):
            return tree.Additive(
                op="+" if isinstance(node, exp.Add) else "-",
                left=self._convert(node.this),
                right=self._convert(node.expression),
                **span,
            )
        if isinstance(node, exp.Neg):
            return tree.Negative(expr=self._convert(node.this), **span)
        if _is_abs(node):
            return tree.Abs(expr=self._convert(node.expressions[0]), **span)
        literal = _number(node) or _interval(node)
        if literal is not None:
            return dataclasses.replace(literal, start=start, end=end)
        if isinstance(node, (exp.Cast, exp.TryCast)) and _is_plain_cast(node):
            to = node.args["to"].sql(dialect=PlainSpark)
            return tree.Cast(expr=self._convert(node.this), type=to, **span)
        return self._opaque(node, start, end)

    def _special(self, node: exp.Expr) -> tree.Expr | None:
        """What a node means where more than predicates is read; None if nothing special."""
        return None

    def _opaque(self, node: exp.Expr, start: int, end: int) -> tree.Opaque:
        holes = _Holes()

        def replace(item: exp.Expr) -> exp.Expr:
            special = self._special(item)
            if isinstance(special, tree.Slot):
                return holes.of(special)
            if _path(item) is not None:
                return holes.of(self.names.resolve(self._parts(item), self.text))
            return item

        parts = holes.cut(node.copy().transform(replace))
        level = _level(node)
        if isinstance(node, (exp.BitwiseLeftShift, exp.BitwiseRightShift)):
            level = Level.PRIMARY
        truth: bool | None = True if level == Level.PREDICATE else None
        if isinstance(node, (exp.Literal, exp.HexString, exp.RawString, exp.Concat)):
            truth = False
        operation = self._operation(node)
        return tree.Opaque(
            parts=parts,
            binding=level,
            boolean=truth,
            operation=operation,
            frame=self._frame(node) if operation else (),
            start=start,
            end=end,
        )

    def _operation(self, node: exp.Expr) -> str:
        """The name of an operation whose operands can be looked at; else empty."""
        if self._frames == MAX_FRAMES:
            return ""
        if node.find(exp.Lambda) is not None:
            # Its variables have no type outside of it.
            return ""
        if isinstance(node, exp.Anonymous):
            return str(node.this).casefold()
        if isinstance(node, exp.Cast) and not node.args.get("safe"):
            return ""
        return _OPERATIONS.get(type(node), "")

    def _frame(self, node: exp.Expr) -> tuple[str | tree.Expr, ...]:
        holes = _Holes()

        def dig(item: exp.Expr) -> None:
            for child in list(item.iter_expressions()):
                if isinstance(child, (exp.Paren, exp.Tuple)) or (
                    isinstance(item, exp.Case) and isinstance(child, exp.If)
                ):
                    dig(child)
                elif not isinstance(child, (exp.DataType, exp.Var, exp.Identifier)):
                    child.replace(holes.of(self._convert(child)))

        copy = node.copy()
        self._frames += 1
        dig(copy)
        self._frames -= 1
        return holes.cut(copy)

    def _parts(self, node: exp.Expr) -> list[Part]:
        parts = []
        for item in _path(node) or []:
            start, end = self._span(item)
            parts.append(Part(str(item.this), start, end))
        return parts

    def _span(self, node: exp.Expr) -> tuple[int, int]:
        """Where the node stands: the parser marks leaves only, so parentheses are balanced here."""
        start, end = self._marked(node)
        if end < 0:
            sample = node.sql(dialect=PlainSpark, comments=False).strip("`'\"${}")
            word = re.match(r"\w+|\S", sample)
            at = self.text.lower().find(word.group().lower()) if word else -1
            return (at, at + len(word.group())) if word and at >= 0 else (0, len(self.text))
        if isinstance(node, (exp.Anonymous, exp.Paren, exp.Add, exp.Sub, *_COMPARISONS)):
            return start, self._closed(start, end)
        return start, end

    def _marked(self, node: exp.Expr) -> tuple[int, int]:
        """The first and the last place that the parser marked in a node; end is -1 without any."""
        if id(node) not in self._spans:
            order = list(node.bfs())
            for item in reversed(order):
                start, end = len(self.text), -1
                if "start" in item.meta:
                    start, end = int(item.meta["start"]), int(item.meta["end"]) + 1
                for child in item.iter_expressions():
                    _, first, last = self._spans[id(child)]
                    start, end = min(start, first), max(end, last)
                # Held on to, so that no other node gets its id.
                self._spans[id(item)] = (item, start, end)
        return self._spans[id(node)][1:]

    def _closed(self, start: int, end: int) -> int:
        """The end of a span once the parentheses that are opened in it are closed."""
        place = bisect.bisect_left(self._closing, (start, 0))
        while place < len(self._closing) and self._closing[place][0] < end:
            close = self._closing[place][1]
            if close >= end:
                return close + 1
            place = bisect.bisect_left(self._closing, (close, 0), lo=place + 1)
        return end


class _Holes:
    """Expressions that are taken out of a text, each marked by a column that nobody can write."""

    def __init__(self) -> None:
        # Not even with escapes inside a text.
        self._mark = f"hole_{secrets.token_hex(8)}_"
        self._taken: list[tree.Expr] = []

    def of(self, expr: tree.Expr) -> exp.Expr:
        """What stands in the text for the expression."""
        self._taken.append(expr)
        return exp.column(exp.to_identifier(f"{self._mark}{len(self._taken) - 1}", quoted=True))

    def cut(self, node: exp.Expr) -> tuple[str | tree.Expr, ...]:
        """The text of a node, cut at its holes."""
        sql = node.sql(dialect=PlainSpark, comments=False)
        parts: list[str | tree.Expr] = []
        for place, piece in enumerate(re.split(rf"`{self._mark}(\d+)`", sql)):
            if place % 2:
                parts.append(self._taken[int(piece)])
            elif piece:
                parts.append(piece)
        return tuple(parts)


def count_tokens(tokens: Sequence[Any], text: str, noun: str) -> None:
    """Refuse what the parser cannot read in a moment."""
    if len(tokens) > MAX_TOKENS:
        raise ParseError(
            f"the {noun} is too long: it has {len(tokens):,} words and signs",
            text=text,
            start=tokens[MAX_TOKENS].start,
            hint=f"use at most {MAX_TOKENS:,}; a list of values can be a stream of its own",
        )
    for token, after in itertools.pairwise(tokens):
        # The time that the parser takes for it grows with the square of its length.
        if token.token_type is TokenType.INTERVAL and len(after.text) > MAX_INTERVAL:
            raise ParseError(
                f"an interval of {len(after.text):,} characters is too long",
                text=text,
                start=token.start,
                end=after.end + 1,
                hint="write it as one number and one unit",
            )


def _closing(tokens: Sequence[Any]) -> list[tuple[int, int]]:
    """The places of all parentheses that open, each with that of the one that closes it."""
    opened: list[int] = []
    found = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token.start)
        elif token.token_type is TokenType.R_PAREN and opened:
            found.append((opened.pop(), token.start))
    return sorted(found)


def _level(node: exp.Expr) -> Level:
    multi_unit = (
        isinstance(node, exp.Add)
        and isinstance(node.this, exp.Interval)
        and isinstance(node.expression, (exp.Interval, exp.Add))
    )
    # INTERVAL 1 HOUR 30 MINUTES arrives as a sum that Spark reads as one literal.
    return Level.PRIMARY if multi_unit else _LEVELS.get(type(node), Level.PRIMARY)


def _flatten(node: exp.Expr, kind: type[Any]) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    stack = [node]
    while stack:
        item = stack.pop()
        while isinstance(item, exp.Paren) and isinstance(item.this, (kind, exp.Paren)):
            item = item.this
        if isinstance(item, kind):
            stack += [item.expression, item.this]
        else:
            found.append(item)
    return found


def _path(node: exp.Expr) -> list[exp.Expr] | None:
    """The identifiers of a dotted column name; None if it is more than that."""
    if isinstance(node, exp.Column):
        return list(node.parts)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        head = _path(node.this)
        return None if head is None else [*head, node.expression]
    return None


def _is_plain_cast(node: exp.Expr) -> bool:
    return not any(node.args.get(name) for name in ("safe", "format", "action", "default"))


def _is_abs(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and str(node.this).lower() == "abs"
    return named and len(node.expressions) == 1


def _number(node: exp.Expr) -> tree.Number | None:
    """Numeric literals, with and without a type suffix (which the parser turns into a cast)."""
    target = ""
    inner = node
    if isinstance(node, (exp.Cast, exp.TryCast)) and _is_plain_cast(node):
        target = node.args["to"].sql(dialect=PlainSpark)
        inner = node.this
    if not isinstance(inner, exp.Literal) or (
        inner.is_string and not target.startswith("DECIMAL(")
    ):
        return None
    sql = node.sql(dialect=PlainSpark, comments=False)
    return read_number(str(inner.this), target, sql)


def _interval(node: exp.Expr) -> tree.Interval | None:
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit = node.args.get("unit")
    if unit is not None and not isinstance(unit, exp.Var):
        return None
    length = interval_length(str(node.this.this), unit.name if unit is not None else None)
    if length is None:
        return None
    sql = node.sql(dialect=PlainSpark)
    return tree.Interval(months=length[0], microseconds=length[1], sql=sql)
