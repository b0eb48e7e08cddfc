"""The public entry point: streams in, a joined DataFrame out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream.planner as planner
from thetastream.api.analyst import SparkAnalyst
from thetastream.api.caller import caller, warn
from thetastream.api.columns import Output, column_specs, output_columns
from thetastream.api.control import running_plan
from thetastream.api.finish import finished
from thetastream.api.lineage import refuse_second_watermark
from thetastream.api.live import go_live
from thetastream.api.session import check_session
from thetastream.api.sites import RemoteStream, remote_of, session_of
from thetastream.api.times import ARRIVAL, Time, TimedFrame, at_site, timed_frames
from thetastream.errors import OptionError, TypeMismatchError, WindowError
from thetastream.options import JoinOptions
from thetastream.planner import Plan, Query, QueryPlan, SiteFacts
from thetastream.runtime.dataflow import build
from thetastream.runtime.fetchstage import with_rest
from thetastream.spec import ColumnSpec, JoinTree, result_column
from thetastream.topology.makers import make
from thetastream.transport.fetching import Errand
from thetastream.transport.messages import NUMBER

__all__ = ["ARRIVAL", "Streams", "sql", "streams"]

Duration = str | timedelta
Within = Duration | tuple[Duration, Duration] | None


def streams(**frames: DataFrame | RemoteStream) -> Streams:
    """Name the streams of a join; the names are the aliases in its predicate.

    >>> pair = ts.streams(orders=orders, rides=rides)
    >>> pair.join("orders.x = rides.x", within="1 hour", delay="1 minute").columns[:3]
    ['order_id', 'orders_x', 'orders_fare']
    """
    return Streams(frames)


class Streams:
    """Named streaming (or batch) DataFrames, to be joined.

    >>> pair = ts.Streams({"orders": orders, "rides": rides})
    >>> pair.join("orders.fare > rides.fare", within="1 hour", delay="1 minute").isStreaming
    True
    """

    def __init__(
        self, frames: Mapping[str, DataFrame | RemoteStream], *, origin: str | None = None
    ) -> None:
        """`origin`: what built the joins, for errors on executors; by default the calling line."""
        if not frames:
            raise OptionError(
                "no streams were given",
                hint="name them: ts.streams(orders=orders_df, rides=rides_df)",
            )
        for name, frame in frames.items():
            if not isinstance(frame, DataFrame | RemoteStream):
                raise OptionError(
                    f"{name} is a {type(frame).__name__}, not a Spark DataFrame",
                    hint="give DataFrames of one Spark session, or streams of sites",
                )
        static_frames = [name for name, frame in frames.items() if _is_static(frame)]
        if static_frames and len(static_frames) < len(frames):
            raise OptionError(
                f"{', '.join(static_frames)} is a batch DataFrame among streams",
                hint="read it with spark.readStream, too; to look up rows in a table, use Spark's"
                " own join of a stream and a batch DataFrame",
            )
        self._remotes = {
            name: remote_of(frame)
            for name, frame in frames.items()
            if isinstance(frame, RemoteStream)
        }
        self._session = session_of(frames)
        self._frames = {
            name: self._remotes[name].typed(self._session)
            if isinstance(frame, RemoteStream)
            else frame
            for name, frame in frames.items()
        }
        self._origin = origin
        self._streaming = not static_frames

    def join(
        self,
        predicate: str,
        *,
        within: Within = None,
        delay: Duration | None = None,
        time: Time = None,
        how: str = "inner",
        options: JoinOptions | None = None,
    ) -> DataFrame:
        """Every combination of rows, one per stream, that satisfies predicate and window, once.

        `within`: the largest difference in time, `"10 minutes"`, or `(before, after)` for
        -before <= second.time - first.time <= after; None joins the full history. `delay`: how late
        a row may be, where its stream has no watermark yet. `time`: the event-time column, one name
        for all streams or one for each, or `ARRIVAL`; by default it is the column with the
        watermark or the only timestamp.

        >>> matches = ts.streams(orders=orders, rides=rides).join(
        ...     "abs(orders.x - rides.x) <= 5 AND orders.fare > rides.fare",
        ...     within="10 minutes",
        ...     delay="1 minute",
        ... )
        >>> matches.select("order_id", "ride_id").columns
        ['order_id', 'ride_id']
        """
        timed, plan = self._plan(predicate, within, time, how, options or JoinOptions(), delay)
        joined = self._built(
            plan, list(timed.values()), delay, options or JoinOptions(), 'give within="10 minutes"'
        )
        return joined.select(
            *(
                F.col(_place(plan, self._frames, column)).alias(column.name)
                for column in output_columns(self._frames)
            )
        )

    def sql(
        self,
        text: str,
        *,
        delay: Duration | None = None,
        time: Time = None,
        options: JoinOptions | None = None,
    ) -> DataFrame:
        """The result of a query over the streams: `SELECT ... FROM a, b WHERE ... WITHIN ...`.

        Without aggregates each result row comes once, as from `join`. With aggregates the result is
        a streaming aggregation for the update or complete output mode, or, if it is grouped by
        `window(time, ...)`, also for the append mode. `delay`, `time` and `options` are those of
        `join`, by the names of the streams.

        >>> offers = ts.streams(orders=orders, rides=rides).sql(
        ...     "SELECT orders.x, count(*) AS offers FROM orders, rides"
        ...     " WHERE orders.fare > rides.fare WITHIN 10 minutes GROUP BY orders.x",
        ...     delay="1 minute",
        ... )
        >>> offers.columns
        ['x', 'offers']
        """
        settings = options or JoinOptions()
        if not self._streaming:
            # There is one batch, and nothing comes after it.
            settings = replace(settings, update_batches=1)
        timed, plan = self._plan_query(text, time, settings, delay)
        joined = self._built(
            plan.join, timed, delay, settings, "write WITHIN 10 minutes into the query"
        )
        try:
            return finished(joined, plan.finish)
        except AnalysisException as error:
            raise TypeMismatchError(
                f"Spark does not accept this query: {str(error).strip().splitlines()[0]}",
                text=text,
                end=len(text),
                hint="check the types in the select list, in HAVING and in the aggregates; columns"
                " are called s0_0, ... s1_0, ... here, groups g_0, ... and aggregates a_0, ...",
            ) from None

    def _built(
        self,
        plan: Plan,
        timed: Sequence[TimedFrame],
        delay: Duration | None,
        settings: JoinOptions,
        limit: str,
    ) -> DataFrame:
        windowed = plan.tree.windowed
        if delay is not None and not windowed:
            raise WindowError(
                "a delay was given, but there is no window",
                hint='add within="10 minutes", or time=... if the window is in the predicate;'
                " a full history has no late rows and needs no delay",
            )
        timed, errands = self._travelling(plan, timed, delay)
        late = None if delay is None else f"{_microseconds(delay)} microseconds"
        inputs = [item.with_delay(late) if windowed else item.frame for item in timed]
        if self._streaming:
            # In the order of what a user has to do: first what is refused, then what is slow.
            refuse_second_watermark(
                {
                    item.name: self._frames[item.name]
                    for item, frame in zip(timed, inputs, strict=True)
                    if item.name not in self._remotes and frame is not self._frames[item.name]
                }
            )
            check_session(self._spark, max(_units_of(plan.tree), settings.max_units or 0))
            if not settings.full_history:
                meant = "options=ts.JoinOptions(full_history=True)"
                if self._origin is not None:
                    meant = "full_history = true in the job's [options]"
                _warn_of_full_history(plan.tree, f"{limit}, or say that this is intended: {meant}")
        tree = plan.tree
        if settings.control is not None:
            tree = self._live(tree, settings.control, settings)
        joined = build(
            tree,
            inputs,
            chunk_rows=settings.chunk_rows,
            cache_bytes=settings.cache_bytes,
        )
        return with_rest(joined, errands, cache_bytes=settings.cache_bytes)

    def _travelling(
        self, plan: Plan, timed: Sequence[TimedFrame], delay: Duration | None
    ) -> tuple[list[TimedFrame], list[Errand]]:
        """The streams with the tuples of sites as they travel, and what is fetched later."""
        found, errands = list(timed), []
        # Any stream's rows may be late: Spark's watermark is the lowest of them.
        late = max(
            0 if delay is None else _microseconds(delay), *(item.own_delay for item in timed)
        )
        for travel in plan.travels:
            item = found[travel.stream]
            remote = self._remotes[item.name]
            remote.check_retention(plan.tree, travel, late)
            frame, errand = remote.travelling(self._session, travel)
            found[travel.stream] = at_site(item, frame)
            errands += [] if errand is None else [errand]
        return found, errands

    def _facts(self, name: str, options: JoinOptions) -> SiteFacts:
        return self._remotes[name].facts(sampled=options.transport == "auto")

    def _specs(self, name: str, frame: DataFrame, options: JoinOptions) -> list[ColumnSpec]:
        """The columns of a stream as the planner sees them."""
        specs = column_specs(name, frame)
        if name in self._remotes and options.transport != "simple":
            specs.append(ColumnSpec(name=NUMBER, type="bigint"))
        return specs

    def _live(self, tree: JoinTree, path: str, options: JoinOptions) -> JoinTree:
        """The joins, going by the tables of a control directory."""
        if not self._streaming:
            raise OptionError(
                "a batch join has no time to be scaled while it runs", hint="leave out control"
            )
        return go_live(self._spark, tree, path, options)

    def explain(
        self,
        predicate: str,
        *,
        within: Within = None,
        delay: Duration | None = None,
        time: Time = None,
        how: str = "inner",
        options: JoinOptions | None = None,
    ) -> Plan:
        """The plan for the same arguments as for `join`, or for a query, with reasons and costs.

        `print(plan)` shows it as text, and a notebook as tables. While a query runs that has the
        same control directory, its hot keys are among the decisions.

        >>> plan = ts.streams(orders=orders, rides=rides).explain("orders.x = rides.x")
        >>> print(plan.decisions[1])
        topology: hash (an equality sends both sides of a key to one unit)
        """
        chosen = options or JoinOptions()
        if isinstance(predicate, str) and planner.is_query(predicate):
            plan = self._plan_query(predicate, time, chosen, delay)[1].join
        else:
            plan = self._plan(predicate, within, time, how, chosen, delay)[1]
        return running_plan(plan, chosen.control)

    @property
    def _spark(self) -> SparkSession:
        return self._session

    def _plan(
        self,
        predicate: str,
        within: Within,
        time: Time,
        how: str,
        options: JoinOptions,
        delay: Duration | None,
    ) -> tuple[dict[str, TimedFrame], Plan]:
        if how != "inner":
            raise OptionError(
                f"how={how!r} is not supported", hint='use how="inner", the only kind for now'
            )
        _require_text(predicate, "predicate")
        timed = timed_frames(self._frames, time, needed=within is not None)
        frames = {name: item.frame for name, item in timed.items()}
        analyst = SparkAnalyst(self._spark, frames)
        plan = planner.plan_join(
            streams={name: self._specs(name, frame, options) for name, frame in frames.items()},
            predicate=predicate,
            within=within,
            time={name: item.column for name, item in timed.items()},
            options=options,
            analyst=analyst,
            origin=self._origin or caller(),
            fixed_zone=analyst.fixed_zone,
            delay=0 if delay is None else _microseconds(delay),
            sites={name: self._facts(name, options) for name in self._remotes},
        )
        return timed, plan

    def _plan_query(
        self, text: str, time: Time, options: JoinOptions, delay: Duration | None
    ) -> tuple[list[TimedFrame], QueryPlan]:
        _require_text(text, "query")
        query = self._read(text, self._frames, options)
        timed = timed_frames(self._frames, time, needed=query.needs_time)
        stamped = {name: item.frame for name, item in timed.items()}
        if any(frame is not self._frames[name] for name, frame in stamped.items()):
            query = self._read(text, stamped, options)
        chosen = [timed[relation.stream] for relation in query.relations]
        aliases = [relation.alias for relation in query.relations]
        analyst = SparkAnalyst(
            self._spark,
            {alias: item.frame for alias, item in zip(aliases, chosen, strict=True)},
        )
        plan = planner.plan_query(
            query,
            time={alias: item.column for alias, item in zip(aliases, chosen, strict=True)},
            options=options,
            analyst=analyst,
            origin=self._origin or caller(),
            fixed_zone=analyst.fixed_zone,
            delay=0 if delay is None else _microseconds(delay),
            sites={
                alias: self._facts(item.name, options)
                for alias, item in zip(aliases, chosen, strict=True)
                if item.name in self._remotes
            },
        )
        return chosen, plan

    def _read(self, text: str, frames: Mapping[str, DataFrame], options: JoinOptions) -> Query:
        analyst = SparkAnalyst(self._spark, frames)
        return planner.parse_query(
            text,
            {name: self._specs(name, frame, options) for name, frame in frames.items()},
            case_sensitive=analyst.case_sensitive,
            functions=options.functions,
            # What was added for the time of arrival is not a column that the user knows.
            hidden={
                name: frozenset((*frame.columns, NUMBER)) - frozenset(self._frames[name].columns)
                for name, frame in frames.items()
            },
        )


def sql(
    text: str,
    streams: Mapping[str, DataFrame | RemoteStream],
    *,
    delay: Duration | None = None,
    time: Time = None,
    options: JoinOptions | None = None,
) -> DataFrame:
    """The result of a query over the named streams; see `Streams.sql`.

    >>> pairs = ts.sql(
    ...     "SELECT o.order_id, r.ride_id FROM orders o, rides r WHERE abs(o.x - r.x) <= 5"
    ...     " WITHIN 1 hour",
    ...     {"orders": orders, "rides": rides},
    ...     delay="1 minute",
    ... )
    >>> pairs.columns
    ['order_id', 'ride_id']
    """
    return Streams(streams).sql(text, delay=delay, time=time, options=options)


def _is_static(frame: DataFrame | RemoteStream) -> bool:
    return frame.is_batch if isinstance(frame, RemoteStream) else not frame.isStreaming


def _place(plan: Plan, frames: Mapping[str, DataFrame], column: Output) -> str:
    """The name of a stream's column among the results of a join."""
    for travel in plan.travels:
        if travel.stream == column.stream:
            own = list(frames.values())[column.stream].columns[column.number]
            return dict((*travel.held, *travel.fetched))[own]
    return result_column(column.stream, column.number)


def _microseconds(delay: Duration) -> int:
    return planner.parse_duration(delay, "delay")


def _require_text(given: object, what: str) -> None:
    if not isinstance(given, str):
        raise OptionError(
            f"the {what} is a {type(given).__name__}, not text",
            hint='write it as SQL, with the names of the streams: "orders.x = rides.x"',
        )


def _units_of(tree: JoinTree) -> int:
    """How many units the largest stage has."""
    return max(
        make(step.spec, step.routing).units(stage.number)
        for step in tree.steps
        for stage in step.spec.stages
    )


def _warn_of_full_history(tree: JoinTree, hint: str) -> None:
    """Warn of rows that are kept for ever; more than two streams would have been refused."""
    spec = tree.last
    if len(tree.steps) > 1 or len(spec.streams) > 2 or spec.span is not None:
        return
    kept = [
        spec.streams[store.stream].name
        for store in spec.stages[0].stores
        if store.retention.keeps is None
    ]
    warn(
        f"every row of {' and '.join(kept)} is kept for ever, because nothing limits how much later"
        " a matching row may come",
        hint=hint,
    )
