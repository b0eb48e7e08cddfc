"""The cost model of joins across sites: the paper's equations, the choice, and what is measured."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from thetastream.errors import OptionError
from thetastream.spec import codec
from thetastream.transport.costmodel import (
    EARNED,
    KEPT,
    Link,
    Quantities,
    Transport,
    choose,
    expected,
    found_in,
    of_the_paper,
    semijoin,
    semijoin_bytes,
    simple,
    simple_bytes,
)
from thetastream.transport.estimate import BatchCounts, Estimate, Transfer

LINK = Link(latency=0.005, bandwidth=1000.0)


def paper(**changed: float) -> Quantities:
    """The paper's default setting, or one of its experiments."""
    given = {"distinct": 10_000.0, "window": 500.0, "rate": 500.0, "full": 100.0} | changed
    return of_the_paper(
        link=replace(LINK, bandwidth=given.get("bandwidth", 1000.0)),
        rates=(given["rate"], given["rate"]),
        windows=(given["window"], given["window"]),
        distinct=given["distinct"],
        full=given["full"],
        partial=10.0,
    )


@pytest.mark.parametrize("seed", range(20))
def test_equations_1_and_2(seed: int) -> None:
    draw = random.Random(seed)
    latency, bandwidth = draw.uniform(0, 0.1), draw.uniform(100, 1e6)
    l1, l2 = draw.uniform(1, 1000), draw.uniform(1, 1000)
    w1, w2 = draw.randint(1, 2000), draw.randint(1, 2000)
    distinct = draw.randint(2, 20_000)
    full, part = draw.uniform(20, 2000), draw.uniform(1, 20)
    p1, p2 = (1 - ((distinct - 1) / distinct) ** window for window in (w1, w2))
    eq1 = l1 * (latency + full / bandwidth)
    eq2 = l1 * (
        latency + part / bandwidth + p2 * (latency + part / bandwidth + latency + full / bandwidth)
    ) + l2 * (1 - p2) * p1 * (
        latency + part / bandwidth + latency + w1 / distinct * full / bandwidth
    )
    given = of_the_paper(
        link=Link(latency=latency, bandwidth=bandwidth),
        rates=(l1, l2),
        windows=(w1, w2),
        distinct=distinct,
        full=full,
        partial=part,
    )
    assert simple(given) == pytest.approx(eq1)
    assert semijoin(given) == pytest.approx(eq2)


def test_nothing_matches() -> None:
    """p ≈ 0: the semijoin saves λ₁ / λ₁₂ (d_F − d_P)."""
    given = paper(distinct=1e12)
    assert simple(given) - semijoin(given) == pytest.approx(500 / 1000 * (100 - 10), rel=1e-6)
    assert choose(given).transport == "semijoin"


def test_everything_matches() -> None:
    """p ≈ 1: the semijoin costs 2 λ₁ (l + d_P / λ₁₂) more."""
    given = paper(distinct=2)
    assert semijoin(given) - simple(given) == pytest.approx(2 * 500 * (0.005 + 10 / 1000))
    assert choose(given).transport == "simple"


def test_the_probability_of_a_partner_is_that_of_random_keys() -> None:
    draw = random.Random(7)
    trials = 4000
    met = sum(0 in {draw.randrange(50) for _ in range(40)} for _ in range(trials))
    assert found_in(40, 50) == pytest.approx(met / trials, abs=0.03)
    assert found_in(0, 50) == 0
    assert found_in(1, 1) == 1
    assert found_in(1, 1e15) == pytest.approx(1e-15)


def test_expected_counts_each_tuple_once() -> None:
    given = expected(
        link=LINK,
        rates=(500, 500),
        windows=(500, 500),
        distinct=20,
        full=100,
        partial=10,
        batch=1.0,
    )
    assert given.match_rate == pytest.approx(1.0)
    assert (given.messages, given.requests) == (1.0, 1.0)
    assert given.question == pytest.approx(8 * 500)
    # Partners in the other window, and those that come while the tuple stays in its own.
    rare = expected(
        link=LINK,
        rates=(500, 250),
        windows=(1000, 300),
        distinct=10_000,
        full=100,
        partial=10,
        batch=0.1,
    )
    assert rare.match_rate == pytest.approx(1 - (1 - 1e-4) ** (300 + 500))
    none = replace(rare, fetched=0.0, requests=0.0)
    assert semijoin(none) < simple(none)


def test_bytes_of_both() -> None:
    """Rows of 1,500 bytes with a key of 12, 1 % match: at most a twentieth of the bytes."""
    given = expected(
        link=Link(latency=0.01, bandwidth=2e6, overhead=500),
        rates=(10_000, 10_000),
        windows=(1e5, 1e5),
        distinct=2e7,
        full=1500,
        partial=12 + 16,
        batch=1.0,
    )
    assert given.match_rate == pytest.approx(0.01, rel=0.01)
    assert semijoin_bytes(given) <= simple_bytes(given) / 20
    assert semijoin_bytes(given) == pytest.approx(
        500 * 3 + 10_000 * 28 + given.fetched * (1500 + 8)
    )


def even(fetched: float) -> Quantities:
    """A semijoin that costs 10 % and `fetched` thousandths of what full tuples cost."""
    return Quantities(
        link=Link(latency=0.0, bandwidth=1e6),
        rate=1000,
        full=1000,
        partial=100,
        messages=1,
        fetched=fetched,
        requests=1,
    )


@pytest.mark.parametrize("start", [None, "simple", "semijoin"])
def test_a_semijoin_has_to_earn_its_second_journey(start: Transport | None) -> None:
    assert simple(even(900)) == pytest.approx(semijoin(even(900)))
    tie = choose(even(900), now=start)
    assert tie.transport == "simple"
    assert "both cost the same, and full tuples need no second journey" in tie.reason
    assert choose(even(1000 * EARNED - 101), now=start).transport == "semijoin"
    assert choose(even(1000 * KEPT - 99), now=start).transport == "simple"
    between = choose(even(850), now=start)
    assert between.transport == (start or "simple")
    assert ("not worth their second journey" in between.reason) == (start != "semijoin")
    for fetched in range(0, 1001, 5):
        assert choose(even(fetched), now=start).cost <= 1.08 * choose(even(fetched)).better


@pytest.mark.parametrize("start", ["simple", "semijoin"])
def test_a_running_query_does_not_go_to_and_fro(start: Transport) -> None:
    """Costs that waver between the two shares never make it change; larger gains do, once."""
    for step in range(50):
        assert choose(even(855 + (10 if step % 2 else -10)), now=start).transport == start
    used = [start]
    for fetched in (100, 860, 845, 865, 890, 860, 845, 865, 100, 855):
        used.append(choose(even(fetched), now=used[-1]).transport)
    assert used[1:] == ["semijoin"] * 4 + ["simple"] * 4 + ["semijoin"] * 2
    left = choose(even(100), now="simple")
    assert "5.0 times cheaper, so the query changes" in left.reason
    ended = choose(even(880), now="semijoin")
    assert ended.reason.endswith(
        "partial tuples first would be 2% cheaper, which is not worth their second journey,"
        " so the query changes"
    )


def test_without_tuples_everything_stays_as_it_is() -> None:
    none = replace(even(0), rate=0, messages=0, requests=0)
    assert choose(none).transport == "simple"
    for now in ("simple", "semijoin"):
        kept: Transport = "simple" if now == "simple" else "semijoin"
        assert choose(none, now=kept).transport == now
        assert "no tuples to choose by" in choose(none, now=kept).reason


def test_sizes_that_were_not_measured_follow_from_those_that_were() -> None:
    """What travels is compressed, and what a sample says is not: the two are never compared."""
    raw = replace(even(100), full=1000, partial=108, rest=900)
    rows = 500
    whole = Transfer(rows=rows, bytes=rows * 200, messages=1, seconds=0.1)
    partial = Transfer(rows=rows, bytes=rows * 60, messages=1, seconds=0.1)
    rest = Transfer(rows=rows, bytes=rows * 148, messages=1, seconds=0.1)
    full = Estimate(raw).after(BatchCounts(seconds=1.0, full=whole))
    sizes = full.quantities
    assert (sizes.full, sizes.partial, sizes.rest) == (200, 8 + 20, 180)
    both = full.after(BatchCounts(seconds=1.0, partial=partial)).quantities
    assert (both.full, both.partial, both.rest) == pytest.approx((200, 60, 148))
    other = Estimate(raw).after(BatchCounts(seconds=1.0, partial=partial, fetched=rest)).quantities
    assert (other.full, other.partial, other.rest) == (200, 60, 148)


@pytest.mark.parametrize("match", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("start", ["simple", "semijoin"])
def test_the_estimate_finds_what_a_link_is_like(match: float, start: str) -> None:
    """From a wrong beginning, whichever transport is in use."""
    true = Link(latency=0.02, bandwidth=2e6, overhead=400)
    rate, full, partial = 5000, 1500, 28
    estimate = Estimate(
        Quantities(
            link=Link(latency=0.001, bandwidth=1e8, overhead=400),
            rate=100,
            full=500,
            partial=28,
            messages=1,
            fetched=50,
            requests=1,
            question=400,
        )
    )
    draw = random.Random(1)
    for _ in range(30):
        rows = draw.randint(rate // 2, rate * 3 // 2)
        wanted = round(rows * match)
        if start == "simple":
            size = rows * full + 400
            counts = BatchCounts(
                seconds=rows / rate,
                full=Transfer(rows=rows, bytes=size, messages=1, seconds=0.02 + size / 2e6),
                matched=wanted,
            )
        else:
            size, back = rows * partial + 400, 2 * 400 + wanted * (full + 8)
            fetched = Transfer(rows=wanted, bytes=back, messages=1, seconds=0.04 + back / 2e6)
            counts = BatchCounts(
                seconds=rows / rate,
                partial=Transfer(rows=rows, bytes=size, messages=1, seconds=0.02 + size / 2e6),
                fetched=fetched if wanted else Transfer(),
                asked=8 * wanted,
                hits=wanted,
            )
        estimate = estimate.after(counts)
    found = estimate.quantities
    assert found.rate == pytest.approx(rate, rel=0.01)
    assert found.match_rate == pytest.approx(match, abs=0.01)
    if start == "simple" or match:
        assert found.full == pytest.approx(full, rel=0.01)
    # What is predicted for one batch with the transport in use is what it takes.
    actual = replace(found, link=true, full=full if start == "simple" or match else found.full)
    cost = simple if start == "simple" else semijoin
    assert cost(found) == pytest.approx(cost(actual), rel=0.1)
    right = replace(
        actual,
        full=full,
        fetched=match * rate,
        requests=min(1.0, match * rate),
        question=8 * match * rate,
    )
    chosen = choose(found, now="simple" if start == "simple" else "semijoin").transport
    wanted_cost = {"simple": simple(right), "semijoin": semijoin(right)}
    assert wanted_cost[chosen] <= 1.1 * min(wanted_cost.values())
    assert estimate.hit_rate == (0.5 if start == "semijoin" and match else 0.0)


def test_sizes_that_vary_tell_latency_from_bandwidth() -> None:
    estimate = Estimate(replace(paper(), link=Link(latency=0.5, bandwidth=1e9)))
    for size in (1000, 400_000, 20_000, 3_000_000, 50, 800_000):
        one = Transfer(rows=size // 50, bytes=size, messages=1, seconds=0.03 + size / 4e5)
        estimate = estimate.after(BatchCounts(seconds=1.0, full=one))
    assert estimate.link.bandwidth == pytest.approx(4e5, rel=0.05)
    assert estimate.link.latency == pytest.approx(0.03, rel=0.05)


def test_two_questions_before_the_start_are_remembered() -> None:
    """Messages of one size never tell latency from bandwidth; what is known of it stays."""
    true = Link(latency=0.005, bandwidth=1000.0)
    estimate = Estimate(replace(paper(), link=Link(latency=0.001, bandwidth=1e7)))
    for size in (10, 100):
        transfer = Transfer(bytes=size, messages=1, seconds=true.seconds(1, size))
        estimate = estimate.heard(transfer)
    for _ in range(100):
        one = Transfer(rows=50, bytes=5000, messages=50, seconds=true.seconds(50, 5000))
        estimate = estimate.after(BatchCounts(seconds=0.1, full=one))
        assert estimate.link.latency == pytest.approx(true.latency, rel=0.1)
        assert estimate.link.bandwidth == pytest.approx(true.bandwidth, rel=0.02)
    assert estimate.heard(Transfer()) is estimate


def test_a_change_is_seen_within_some_batches() -> None:
    estimate = Estimate(paper())
    for step in range(60):
        matched = 0 if step < 30 else 90
        estimate = estimate.after(
            BatchCounts(
                seconds=1.0,
                full=Transfer(rows=100, bytes=10_000, messages=100, seconds=10.5),
                matched=matched,
            )
        )
        if step == 29:
            assert estimate.match_rate < 0.02
        if step == 29 + 8:
            assert estimate.match_rate == pytest.approx(0.45, abs=0.05)
    assert estimate.match_rate == pytest.approx(0.9, abs=0.1)


def test_where_nothing_matches_no_request_is_expected_soon() -> None:
    """What was assumed of the match rate must not linger as one request per batch."""
    link = Link(latency=0.005, bandwidth=4e7)
    assumed = Quantities(
        link=link,
        rate=1500,
        full=150,
        partial=30,
        messages=1,
        fetched=750,
        requests=1,
        question=6000,
    )
    estimate, now = Estimate(assumed), choose(assumed).transport
    assert now == "simple"
    used = []
    for _ in range(20):
        one = Transfer(rows=1500, bytes=225_000, messages=1, seconds=link.seconds(1, 225_000))
        estimate = estimate.after(BatchCounts(seconds=1.0, full=one))
        used.append(choose(estimate.quantities, now=now).transport)
    assert used[-8:] == ["semijoin"] * 8
    assert estimate.quantities.requests < 0.01


def test_nothing_measured_is_what_was_assumed() -> None:
    given = paper()
    assert Estimate(given).quantities == given
    empty = Estimate(given).after(BatchCounts(seconds=1.0))
    assert empty.match_rate == given.match_rate
    assert empty.link == given.link
    assert simple(empty.quantities) == 0.0


def test_an_estimate_is_written_and_read() -> None:
    one = Transfer(rows=100, bytes=10_000, messages=1, seconds=0.5)
    estimate = Estimate(paper()).after(BatchCounts(seconds=1.0, full=one, matched=7))
    assert codec.from_json(Estimate, codec.to_json(estimate)) == estimate


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Link(latency=-1, bandwidth=1), "latency=-1"),
        (lambda: Link(latency=0, bandwidth=0), "bandwidth=0"),
        (lambda: Link(latency=math.nan, bandwidth=1), "latency=nan"),
        (lambda: replace(paper(), fetched=-1), "fetched=-1"),
        (lambda: found_in(3, 0), "distinct=0"),
        (lambda: Transfer(rows=-1), "rows=-1"),
        (lambda: BatchCounts(seconds=math.inf), "seconds=inf"),
        (lambda: Estimate(paper(), half_life=0), "half_life=0"),
    ],
)
def test_what_is_refused(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(OptionError, match=message):
        wrong()
