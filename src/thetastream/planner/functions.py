"""Which functions a predicate may call.

A join predicate is evaluated in several places and again after a restart, and its text may come
from outside. So only deterministic scalar functions that touch nothing but their arguments are
allowed; everything unknown is refused until the user names it in `JoinOptions.functions`. So are
functions that take a regular expression: Java tries it in ways that can grow exponentially with the
length of a text, so that one row would keep a task busy for years.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


CASTS = words(
    "bigint binary boolean date decimal double float int smallint string timestamp tinyint"
)
"""Functions that only cast; decimal() casts to decimal(10,0), like Spark's."""

_MATHS = words(
    """
    abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv
    cos cosh cot csc degrees div e exp expm1 factorial floor getbit greatest hex hypot isnan least
    ln log log10 log1p log2 mod nanvl negative pi pmod positive pow power radians rint round sec
    shiftleft shiftright shiftrightunsigned sign signum sin sinh sqrt tan tanh try_add try_divide
    try_mod try_multiply try_subtract unhex width_bucket
    """
)
_LOGIC = words(
    "coalesce decode equal_null if ifnull isnotnull isnull nullif nullifzero nvl nvl2 zeroifnull"
)
_STRINGS = words(
    """
    ascii base64 bit_length btrim char char_length character_length chr collate collation concat
    concat_ws contains crc32 elt encode endswith find_in_set format_number format_string hash
    initcap instr lcase left len length levenshtein like ilike locate lower lpad ltrim luhn_check
    mask md5 octet_length overlay parse_url position printf quote repeat replace reverse right rpad
    rtrim sha sha1 sha2 soundex space split_part startswith substr substring substring_index
    to_binary to_char to_number to_varchar translate trim try_to_binary try_to_number ucase unbase64
    upper url_decode url_encode is_valid_utf8 make_valid_utf8 validate_utf8 xxhash64
    """
)
_TIMES = words(
    """
    add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc datediff datepart day dayname dayofmonth dayofweek dayofyear extract
    from_unixtime from_utc_timestamp hour last_day make_date make_dt_interval make_interval
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname
    months_between next_day quarter second timestamp_micros timestamp_millis timestamp_seconds
    timestampadd timestampdiff dateadd to_date to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp trunc try_make_timestamp try_to_date try_to_timestamp
    unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
    """
)
_NESTED = words(
    """
    aggregate array array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip
    cardinality element_at exists filter flatten forall get json_array_length json_object_keys
    get_json_object map map_concat map_contains_key map_entries map_filter map_from_arrays
    map_from_entries map_keys map_values map_zip_with named_struct reduce sequence size slice
    sort_array struct transform transform_keys transform_values try_element_at try_variant_get
    variant_get zip_with is_variant_null parse_json try_parse_json from_json to_json str_to_map
    typeof
    """
)

ALLOWED = CASTS | _MATHS | _LOGIC | _STRINGS | _TIMES | _NESTED

MATCHING = words("regexp regexp_like rlike")
"""The operators RLIKE and REGEXP under other names: whoever allows one of them allows all."""

_PATTERNS = MATCHING | words(
    "regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr split"
)
"""Functions that take a regular expression."""

_PATTERN_FROM = {"parse_url": 3, "str_to_map": 2}
"""Functions that take one as well if they have so many arguments."""

AGGREGATES = words(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k array_agg avg bit_and
    bit_or bit_xor bool_and bool_or collect_list collect_set corr count count_if
    count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by
    mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg
    try_sum var_pop var_samp variance bitmap_construct_agg bitmap_or_agg hll_sketch_agg
    hll_union_agg
    """
)
"""Functions of many rows."""

_UNSTEADY = "gives a different value each time it is evaluated"
_NEVER: dict[str, frozenset[str]] = {
    _UNSTEADY: words(
        """
        rand randn random randstr uniform uuid shuffle monotonically_increasing_id
        spark_partition_id now current_timestamp current_date current_time localtimestamp localtime
        curdate curtime current_datetime aes_encrypt
        """
    ),
    "reaches outside the data": words(
        """
        reflect java_method try_reflect input_file_name input_file_block_start
        input_file_block_length current_user user session_user current_role current_database
        current_schema current_catalog current_timezone current_path version raise_error
        assert_true call_function identifier
        """
    ),
    "aggregates over many rows": AGGREGATES,
    "ranks rows of a window": words(
        "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number window "
        "session_window window_time"
    ),
    "makes several rows of one": words(
        "explode explode_outer inline inline_outer posexplode posexplode_outer stack json_tuple "
        "range variant_explode variant_explode_outer sql_keywords"
    ),
}


def refusal(name: str, arguments: int, extra: Iterable[str] = ()) -> tuple[str, str] | None:
    """Why the function may not be called, and what to do instead; None when it may."""
    folded = name.casefold()
    for reason, names in _NEVER.items():
        if folded in names:
            hint = "compute it as a column of the stream before the join"
            if reason is _UNSTEADY:
                # In the query itself a task that runs again would compute another value.
                hint = "store its value with the rows, before the stream is read"
            return f"{name}() {reason}; it is not allowed in a join predicate", hint
    if folded == "unix_timestamp" and arguments == 0:
        return (
            f"{name}() without arguments is the current time; it is not allowed in a join"
            " predicate",
            "give it the column to convert",
        )
    own = {item.casefold() for item in extra}
    if folded in own or (folded in MATCHING and own & MATCHING):
        return None
    if folded in _PATTERNS or arguments >= _PATTERN_FROM.get(folded, arguments + 1):
        return (
            f"{name}() takes a regular expression, and some of them keep Spark busy for ever",
            "use contains(), split_part(), or LIKE with few signs %; or allow it, "
            f'JoinOptions(functions=("{folded}",))'
            f' or functions = ["{folded}"] in the [options] of a job, if you trust whoever wrote'
            " the expression",
        )
    if folded in ALLOWED:
        return None
    close = difflib.get_close_matches(folded, sorted(ALLOWED | own), n=1, cutoff=0.75)
    guess = f"did you mean {close[0]}()? Otherwise " if close else ""
    return (
        f"{name}() is not a function that a predicate may call",
        f"{guess}name it in JoinOptions(functions=...) if it is your own and deterministic",
    )
