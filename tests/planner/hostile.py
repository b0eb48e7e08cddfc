"""Hostile texts by family; run as a program, what becomes of each text of one family.

The program limits its own memory and processor time: a text that wants more ends it.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence

from thetastream.errors import ThetastreamError
from thetastream.options import JoinOptions
from thetastream.planner import Parallelism, parse_query, plan_join, plan_query
from thetastream.planner.functions import words
from thetastream.spec import ColumnSpec
from thetastream.spec.codec import to_json

MEMORY = 200 * 2**20
SECONDS = 20
"""Many times what any text takes, for machines that have more to do."""

KINDS = {"id": "int", "x": "double", "name": "string", "at": "timestamp", "flag": "boolean"}
STREAMS = {
    stream: [ColumnSpec(name=name, type=kind) for name, kind in KINDS.items()] for stream in "rs"
}
MARK = "evil"
"""Stands in whatever must not reach Spark."""


def _calls() -> list[str]:
    names = words(
        """
    reflect java_method try_reflect input_file_name input_file_block_start current_user user
    session_user current_database current_schema current_catalog current_timezone version
    raise_error assert_true call_function rand randn uuid shuffle now current_timestamp
    current_date localtimestamp monotonically_increasing_id spark_partition_id aes_encrypt explode
    inline stack posexplode json_tuple range sql_keywords read_files http_request ai_query secret
    java_import eval exec xpath from_xml schema_of_json collect_list count sum row_number lag
    """
    )
    forms = (
        "{}('evil', 'x') = r.name",
        "`{}`('evil') = 'x'",
        "r.id = s.id AND upper({}('evil')) = 'X'",
        "CASE WHEN {}('evil') THEN true END",
        "system.builtin.{}('evil') = 1",
    )
    return [form.format(name) for name in sorted(names) for form in forms]


def _statements() -> list[str]:
    said = (
        "DROP TABLE evil", "DELETE FROM evil", "INSERT INTO evil VALUES (1)", "SET evil = 1",
        "RESET evil", "ADD JAR 'evil.jar'", "ADD FILE '/evil'", "CREATE FUNCTION f AS 'evil'",
        "CREATE TABLE evil (a int)", "CACHE TABLE evil", "USE evil", "SHOW TABLES IN evil",
        "DESCRIBE evil", "EXPLAIN SELECT evil", "EXECUTE IMMEDIATE 'evil'", "CALL evil()",
        "MERGE INTO evil USING s ON true", "TRUNCATE TABLE evil", "ALTER TABLE evil ADD x int",
        "BEGIN SELECT evil; END", "DECLARE evil INT", "LOAD DATA INPATH 'evil' INTO TABLE t",
        "REFRESH 'evil'", "GRANT ALL ON evil TO me", "ANALYZE TABLE evil COMPUTE STATISTICS",
    )  # fmt: skip
    forms = ("{}", "r.id = s.id; {}", "r.id = s.id;{};", "({})", "r.id = ({})", "{} WHERE r.id = 1")
    return [form.format(item) for item in said for form in forms]


def _relational() -> list[str]:
    said = (
        "r.id = (SELECT evil FROM t)", "r.id IN (SELECT evil)", "EXISTS (SELECT evil)",
        "r.id = ANY (SELECT evil)", "(WITH evil AS (SELECT 1) SELECT * FROM evil) = 1",
        "WITH evil AS (SELECT 1) SELECT 1", "r.id = 1 UNION SELECT evil", "r.id = 1 |> WHERE evil",
        "r.id = 1 LATERAL VIEW explode(evil) t", "TRANSFORM(r.id) USING 'evil' = 1",
        "SELECT TRANSFORM(a) USING 'evil' FROM t", "MAP r.id USING 'evil'", "FROM evil SELECT 1",
        "r.id = 1 ORDER BY evil", "r.id = 1 LIMIT evil()", "r.id = 1 CLUSTER BY evil",
        "r.id = 1 WINDOW w AS (PARTITION BY evil)", "sum(r.id) OVER (ORDER BY evil) = 1",
        "r.id = range(evil)", "r.id IN (TABLE evil)", "VALUES ('evil')", "TABLE evil",
        "r.id = IDENTIFIER('evil')", "IDENTIFIER('evil')(r.id) = 1", "r.id = :evil", "r.id = ?",
        "r.id = ${evil}", "r.id = {evil}", "r.id = @evil", "r.id = @@evil", "r.id = $evil",
        "r.id = s.id TABLESAMPLE (1 PERCENT) evil", "r.name:evil = 1", "r.id = s.id AS evil",
        "r.* = evil", "* = evil", "evil.*", "r.evil = 1", "evil.id = 1", "r.id.evil()",
        "r.id = 1 MATCH_RECOGNIZE (evil)", "r.id PIVOT (evil)", "r.id = 1 QUALIFY evil",
    )  # fmt: skip
    return [form.format(item) for item in said for form in ("{}", "r.id = s.id AND ({})")]


def _comments() -> list[str]:
    around = (
        "/* evil */ {}", "{} -- evil", "{} /* evil", "/*+ BROADCAST(evil) */ {}",
        "/* /* evil */ {}", "/* /* */ evil */ {}", "{} -- evil \\\n AND r.x = 1", "--evil\r{}",
        "{} /*! evil */", "{} # evil", "{} // evil", "/**/{}/*evil*/", "{} --/* evil\n--*/",
        "{} */ evil /*", "/*evil*//*+ evil */{}", "{} \\-- evil",
    )  # fmt: skip
    inner = ("r.id = s.id", "r.id /* evil */ = s.id", "r.name = '/*' || s.name", "r.x < s.x")
    return [form.format(item) for form in around for item in inner]


def _signs() -> list[str]:
    odd = (
        "\u202e \u2066 \u200b \u200d \ufeff \u00ad \u0301 \u3000 \u00a0 \u2028 \x00 \x01 \x1b[2J"
        " \x7f \ud800 \udfff \U000e0041 \uff07 \uff02 \u2018 \u2019 \u201c \uff1b \uff08 \uff1d"
        " \u037e \u0430 \u0131 \u017f \u212a \u00b2 \u0661 \uff11 \U0001d7ce \U0001f600 \u2212"
    )
    forms = ("r.id = s.id{}", "r.{}id = s.id", "{}", "r.name = '{}'", "r.`{}` = 1", "r.id = 1{}")
    return [form.format(item) for item in odd.split(" ") for form in forms]


def _quotes() -> list[str]:
    return [
        "'", '"', "`", "''", '""', "``", "r.name = 'a", 'r.name = "a', "r.`id = 1", "r.`` = 1",
        "r.name = '\\'", "r.name = 'a\\' OR 1=1 --'", "r.name = 'a'' OR 1=1'", "r.name = r'\\'",
        "r.name = R'a' OR r.flag", "r.`id``; evil` = 1", "r.`id` `evil` = 1", "`r.id` = 1",
        "r.name = 'a' 'b' \"c\"", "r.name = '\\u0027 OR 1=1'", "r.name = '\\047 OR 1=1'",
        "r.name = 'a\nb'", "r.name = N'a'", "r.name = U&'\\0027'", "r.name = $$a$$ OR evil",
        "r.name = $evil$ a $evil$", "r.name = b'evil'", "r.name = X'27'", "r.name = X'2'",
        "r.name = 'hole_0'", "r.name = '`hole_0`'", "r.`hole_0` = 1", "r.name LIKE 'a' ESCAPE ''",
        "[r].[id] = 1", '"r"."id" = 1', "r.name = '\\Z\\0\\b'", "r.name = '%s' % 1", "r.\"id\"=1",
    ]  # fmt: skip


def _nested() -> list[str]:
    around = (
        ("(", "r.id = s.id", ")"), ("NOT ", "r.flag", ""), ("r.id = - ", "1", ""), ("- ", "1", ""),
        ("CASE WHEN r.flag THEN ", "true", " END"), ("abs(", "1", ")"), ("sqrt(", "r.x", ")"),
        ("CAST(", "r.id", " AS INT)"), ("", "r.id", "::int"), ("", "r.tags", "[0]"),
        ("", "r", ".a"), ("array(", "1", ")"), ("1 + ", "r.id", ""), ("r.id * ", "1", ""),
        ("r.flag AND (", "true", ")"), ("r.flag OR (", "true", ")"), ("r.flag AND ", "true", ""),
        ("r.flag OR ", "true", ""), ("~", "1", ""), ("(r.id, ", "1", ")"), ("", "r.id", " IS NULL"),
        ("transform(r.tags, v -> ", "1", ")"), ("r.id BETWEEN ", "1", " AND 2"), ("[", "1", "]"),
        ("", "r.name", " || 'a'"), ("(SELECT ", "1", ")"), ("EXISTS(", "1", ")"), ("{", "1", "}"),
        ("CAST(NULL AS ARRAY<", "INT", ">)"), ("/*", "r.flag", "*/"), ("", "r.name", " COLLATE x"),
        ("", "r.name", " LIKE 'a'"), ("if(r.flag, ", "true", ", false)"), ("(((", "1", "))"),
        ("r.id = s.id AND abs(r.name = '(') AND ", "true", ""), ("", "r.name", "->'a'"),
    )  # fmt: skip
    return [
        text
        for before, middle, after in around
        for count in (20, 60, 190, 1_000, 5_000)
        for text in (before * count + middle + after * count,)
    ]


def _bombs() -> list[str]:
    return [
        "r.id = 1e999999999", "r.id = s.id + 1e999999999D", "r.x < s.x + 1e-999999999",
        "r.x < s.x + 1E400", "r.x < CAST('1e999999999' AS DECIMAL(10,2))",
        "r.x < CAST('1' AS DECIMAL(999999999, 2))", "r.x < CAST(1 AS DECIMAL(9999, 9999))",
        "r.x < 1e99999999BD", "r.id = " + "9" * 1_000_000, "r.id = " + "9" * 40_000,
        "r.x < 0." + "0" * 40_000 + "1", "r.x < CAST('1' AS DECIMAL(" + "9" * 5_000 + ", 2))",
        "r.id = 0x" + "f" * 40_000, "r.id = X'" + "ff" * 20_000 + "'", "r.id = 1L" + "1" * 9_000,
        "r.at < s.at + INTERVAL '" + "1 day " * 8_000 + "'",
        "r.at < s.at + INTERVAL " + "1 day " * 8_000,
        "r.at < s.at + INTERVAL '" + "9" * 40_000 + "' DAY",
        "r.at < s.at + INTERVAL '999999999999999999999999' DAY",
        "r.at BETWEEN s.at - INTERVAL 99999999999999 YEAR AND s.at",
        "r.at < s.at + INTERVAL '1 99999999999:00:00' DAY TO SECOND",
        "r.at < s.at + INTERVAL '-' DAY", "r.at < s.at + INTERVAL evil DAY",
        "r." + "a" * 49_000 + " = 1", "a" * 49_000 + " = 1", "a" * 40_000 + "(1) = 1",
        "r.`" + "a" * 40_000 + "` = 1", "r.id = 1 " + " " * 5_000_000, "r.id = 1 AND " * 500_000,
        "r.id IN (" + ",".join(map(str, range(8_000))) + ")",
        "r.id IN (" + ",".join(map(str, range(2_000))) + ")",
        "r.id = greatest(" + ",".join(["1"] * 24_000) + ")",
        " AND ".join(f"r.id <> s.id + {i}" for i in range(500)),
        " AND ".join(f"r.id <> s.id + {i}" for i in range(3_000)),
        " OR ".join(f"r.id = s.id + {i}" for i in range(550)),
        " AND ".join(f"r.id = s.id + {i}" for i in range(550)),
        " AND ".join(f"r.id < s.id + {i}" for i in range(550)),
        " AND ".join(["r.name = '('"] * 1_000), " AND ".join(["r.name LIKE s.name"] * 1_000),
        " AND ".join(f"f{i}(r.id)" for i in range(1_000)), "/**/" * 12_000 + "r.id = s.id",
        "--\n" * 16_000 + "r.id = s.id", "/*" * 20_000, "r.id = s.id" + ";" * 40_000,
        "r.id = s.id" + "; SELECT 1" * 4_000, "<" * 40_000, "$" * 40_000, "`" * 40_001,
        "'" * 40_001, "@" * 40_000, "\\" * 40_000, "\n" * 40_000, "." * 40_000, "," * 40_000,
    ]  # fmt: skip


def _whole_queries() -> list[str]:
    join = "FROM r, s WHERE r.id = s.id"
    long = " + ".join(["r.id"] * 150)
    many = " AND ".join(["a > 1"] * 600)
    wide = ", ".join(["1"] * 1_200)
    deep = "1"
    for _ in range(40):
        deep = f"greatest({', '.join(['r.id'] * 30)}, {deep})"
    return [
        f"SELECT sum(r.x) + {long} AS a {join} GROUP BY {long} HAVING {many}",
        f"SELECT {long} AS a {join} GROUP BY r.id, {long} HAVING {' + '.join(['a'] * 150)} > 1",
        f"SELECT greatest({wide}, sum(r.id)) AS a {join} HAVING {many}",
        f"SELECT {deep} AS a, count(*) {join} GROUP BY r.id",
        "SELECT " + ", ".join(f"r.id + {i} AS c{i}" for i in range(600)) + f" {join}",
        "SELECT " + ", ".join(["*"] * 1_000) + f" {join}",
        f"SELECT count(*) {join} GROUP BY " + ", ".join(f"r.id + {i}" for i in range(600)),
        f"SELECT count(*) {join} GROUP BY " + ", ".join(["1"] * 1_000),
        "SELECT " + ", ".join(f"sum(r.id + {i}) AS c{i}" for i in range(400)) + f" {join}",
        "SELECT r.id FROM " + ", ".join(f"r AS a{i}" for i in range(500)),
        f"SELECT r.id {join} " + "WITHIN 1 minute " * 500,
        f"SELECT r.id {join} WITHIN " + "1 day " * 2_000,
        f"SELECT r.id {join} WITHIN " + "9" * 30_000 + " days",
        f"SELECT r.id {join} WITHIN evil",
        f"SELECT /*+ BROADCAST(evil) */ r.id {join}",
        "SELECT r.id FROM r JOIN LATERAL (SELECT evil) t",
        "SELECT r.id FROM range(evil), s",
        "SELECT r.id FROM parquet.`/evil`, s",
        "SELECT r.id FROM r VERSION AS OF evil, s",
        "SELECT r.id FROM IDENTIFIER('evil'), s",
        "SELECT r.id FROM (SELECT evil), s",
        "SELECT r.id FROM read_files('evil'), s",
        "SELECT r.id FROM STREAM(evil), s",
        f"SELECT r.id INTO evil {join}",
        f"SELECT r.id {join} UNION SELECT evil",
        f"SELECT r.id {join} |> DROP evil",
        f"SELECT r.id AS `evil``; x` {join} ORDER BY evil",
        f"WITH evil AS (SELECT 1) SELECT r.id {join}",
        "FROM r, s SELECT evil",
        "SELECT ONLINE " * 2_000,
        "SELECT " * 5_000,
        "SELECT r.id FROM r " + "JOIN s " * 2_500,
    ]  # fmt: skip


FAMILIES: dict[str, Sequence[str]] = {
    "calls": _calls(),
    "statements": _statements(),
    "relational": _relational(),
    "comments": _comments(),
    "signs": _signs(),
    "quotes": _quotes(),
    "nested": _nested(),
    "bombs": _bombs(),
    "queries": _whole_queries(),
}


class Yes:
    """An analyst that has no objection, so that nothing hides behind a wrong type."""

    ansi = True
    case_sensitive = False
    parallelism = Parallelism(tasks=4, partitions=4)
    zone = "UTC"

    def type_over(self, streams: Sequence[str], sql: str) -> str:
        return "boolean"

    def common_type(self, left: str, right: str) -> str | None:
        return left

    def with_stream(self, name: str, columns: Sequence[ColumnSpec]) -> Yes:
        return self


def predicate_text(text: str) -> str:
    """All that Spark would get to see of a predicate."""
    return to_json(plan_join(streams=STREAMS, predicate=text, analyst=Yes()).spec)


def query_text(text: str) -> str:
    """All that Spark would get to see of a query."""
    query = parse_query(text, STREAMS, case_sensitive=False)
    plan = plan_query(
        query, time={"r": "at", "s": "at"}, options=JoinOptions(full_history=True), analyst=Yes()
    )
    return f"{to_json(plan.join.spec)} {plan.finish!r}"


def outcome(text: str, *, query: bool) -> str:
    """What becomes of a text: the error that refuses it, or what Spark would get."""
    try:
        return f"accepted: {query_text(text) if query else predicate_text(text)}"
    except ThetastreamError as error:
        return f"refused: {error}"


def _limit() -> None:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))


def _main(family: str) -> None:
    _limit()
    for number, text in enumerate(FAMILIES[family]):
        forms = [(text, True)]
        if family != "queries":
            forms = [(text, False), (f"SELECT r.id FROM r, s WHERE {text}", True), (text, True)]
        for form, query in forms:
            used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            resource.setrlimit(resource.RLIMIT_CPU, (int(used) + SECONDS, resource.RLIM_INFINITY))
            print(json.dumps([number, query, "began"]), flush=True)
            print(json.dumps([number, query, outcome(form, query=query)]), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
