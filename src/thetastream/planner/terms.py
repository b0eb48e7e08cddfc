"""A short explanation of each term in a plan that is not common knowledge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from thetastream.spec import Routing

TOPOLOGIES = {
    Routing.HASH: "a row is stored, and looks for partners, in the unit of its key",
    Routing.CONTRAND: "ContRand: the key chooses a subgroup of the units; one of them stores the"
    " row, and all of the other stream's subgroup are probed",
    Routing.RANDOM: "any unit stores the row, which probes all units of the other stream",
    Routing.BAND: "a row is stored in the unit of its key's bucket, and probes the units of the"
    " buckets that its band touches",
    Routing.MATRIX: "units are cells of a matrix; a row is stored, and probes, in a whole row or"
    " column",
    Routing.SPLIT: "any unit stores the row, which probes all units; each has rows of both streams",
    Routing.BROADCAST: "one stream is stored in every unit; a row of the other one is stored, and"
    " probes, in any of them",
    Routing.MULTI_CHAINED: "every unit stores the row, which probes one of them",
    Routing.STREAM_AWARE: "any unit stores the row, which probes all units of the other stream;"
    " frequent values are kept apart",
}
"""What each topology does with a row."""

_TERMS = {
    "conjunct": "a part of the predicate between its ANDs",
    "driving predicate": "what stored rows are sorted and searched by; the rest filters what it"
    " finds",
    "topology": "which units store a row, and which ones it probes",
    "routing table": "says which units store which rows; a live one can change while the query"
    " runs",
    "unit": "a share of the stored rows, handled by one task at a time",
    "probe": "to look for a row's partners among the stored rows of a unit",
    "sorted run": "stored rows in the order of the driving key, for binary search",
    "partition-group": "a sixtieth of the keys, by a hash",
    "mini-group": "a part of a partition-group that is split when it is large and merged with its"
    " other half, the buddy, when it is small",
    "hot value": "a frequent value of the driving key",
    "archive period": "the span of event time whose runs expire together, as one link of a chain",
    "kernel": "the search inside the units, before Spark sees any pair",
    "residual": "what the kernel cannot decide; Spark evaluates it on the pairs that are left",
    "join graph": "the streams as nodes, the comparisons between them as edges",
    "cyclic": "every two of the streams are compared with each other",
    "chain": "the two outer streams are compared with the middle one only",
    "symmetric": "a result is completed by its newest row, in the unit that stores its oldest row",
    "semi-symmetric": "the same, but what the middle stream makes with one end is sent on to the"
    " other end",
    "tree of two-way joins": "the results of each join are a stream of the next one",
    "store of": "the stored rows of one stream, over all units; rows of the others visit them",
    "by content": "only to the units that may store a partner of the row",
    "intermediate": "pairs of two streams' rows that wait for a row of the third",
    "pack": "a row, the hub, with all of its partners, stored as one entry",
    "prefix": "a key of eight bytes: values that it cannot tell apart are compared again",
}


def terms_in(texts: Iterable[str]) -> Sequence[tuple[str, str]]:
    """The terms that occur in some texts, with what they mean; SQL in the texts is left out."""
    text = re.sub(r"`[^`]*`", "", "\n".join(texts))
    return [
        (term, meaning)
        for term, meaning in _TERMS.items()
        if re.search(rf"\b{re.escape(term)}(s|es)?\b", text, re.IGNORECASE)
    ]
