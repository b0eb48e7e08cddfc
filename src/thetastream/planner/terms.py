"""Half a line on each term of an explanation that only a reader of the papers knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from thetastream.spec import Routing

TOPOLOGIES = {
    Routing.HASH: "a row is stored and probes in the unit of its key",
    Routing.CONTRAND: "ContRand: a key has a subgroup of the units; one of them stores a row, all"
    " of the other stream's are probed",
    Routing.RANDOM: "any unit stores a row, which probes all units of the other stream",
    Routing.BAND: "a row is stored in the unit of its key's bucket; it probes those that its band"
    " touches",
    Routing.MATRIX: "units are cells of a matrix; a row is stored, and probes, in a whole line",
}
"""What each topology does with a row."""

_TERMS = {
    "conjunct": "a part of the predicate between its ANDs",
    "driving predicate": "what stored rows are sorted and searched by; the rest filters what it"
    " finds",
    "topology": "which units store a row, and which ones it probes",
    "unit": "a share of the stored rows, in the hands of one task at a time",
    "probe": "to look for a row's partners among the stored rows of a unit",
    "sorted run": "stored rows in the order of the driving key, which a probe searches by halves",
    "archive period": "the event time whose runs are one link of a chain, to be dropped together",
    "kernel": "the search inside the units, before Spark sees any pair",
    "residual": "what the kernel cannot decide; Spark evaluates it on the pairs that are left",
    "join graph": "the streams as points, the comparisons between them as lines",
    "cyclic": "every two of the streams are compared with each other",
    "chain": "the two outer streams are compared with the middle one only",
    "symmetric": "a result is completed by its newest row, in the unit that stores its oldest row",
    "semi-symmetric": "the same, but what the middle stream makes with one end is sent on to the"
    " other end",
    "tree of two-way joins": "the results of each join are a stream of the next one",
    "store": "the stored rows of one stream, in its units; the rows of the others visit them",
    "by content": "only to the units that may store a partner of the row",
    "intermediate": "pairs of two streams' rows that wait for a row of the third",
    "pack": "a row, the hub, with all of its partners, stored as one entry",
    "prefix": "a key of eight bytes: what it cannot tell apart is compared again",
}


def terms_in(texts: Iterable[str]) -> Sequence[tuple[str, str]]:
    """The terms that occur in some texts, with what they mean; SQL in the texts is left out."""
    text = re.sub(r"`[^`]*`", "", "\n".join(texts))
    return [
        (term, meaning)
        for term, meaning in _TERMS.items()
        if re.search(rf"\b{re.escape(term)}(s|es)?\b", text, re.IGNORECASE)
    ]
