"""What each writer said, and how each rank ended: the words that `ends` and `origins` judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ml.log_diffs.exits import Exit, exits_in
from ml.log_diffs.messages import Raised, Voice, raised, voice
from ml.log_diffs.topology import Job

TIE_S = 2.0
"""Ends closer together than this have no order: launchers poll and print whole seconds."""
OTHER_ZONE_S = 1_800.0


@dataclass(frozen=True)
class Utterance:
    """One template of one writer (a rank, or a node's launcher): how often, since when, and its first words."""

    template_id: str
    message: str
    node: str | None = None
    rank: int | None = None
    role: str | None = None
    stream: str | None = None
    level: str | None = None
    alert: str | None = None
    template: str | None = None
    n_events: int = 1
    first_at: float | None = None
    onset_at: float | None = None
    uncertainty_s: float = 0.0
    offset_s: float = 0.0
    iteration: int | None = None
    phase: str | None = None
    file: str | None = None
    line: int | None = None
    is_normal: bool = False
    messages: tuple[str, ...] = ()

    @cached_property
    def voice(self) -> Voice:
        """Whom it speaks of."""
        return voice(self.message, is_failure=True if self.alert else None)

    @cached_property
    def raised(self) -> Raised | None:
        """The first exception that it tells of."""
        return raised(self.message)

    @cached_property
    def exits(self) -> tuple[Exit, ...]:
        """Ends of processes that it reports."""
        return tuple(each for text in (self.messages or (self.message,)) for each in exits_in(text))

    @property
    def ref(self) -> tuple[tuple[str, int | None], ...]:
        """Where it stands."""
        return ((self.file, self.line),) if self.file else ()


@dataclass(frozen=True)
class End:
    """How one rank ended: its exit, when, and where that is written."""

    rank: int
    exit: Exit
    at: float | None
    ref: tuple[tuple[str, int | None], ...]
    template_id: str


@dataclass(frozen=True)
class Words:
    """All that the ranks of a failed job said about its failure, sorted by whom it speaks of."""

    job: Job
    utterances: tuple[Utterance, ...]
    ends: dict[int, End] = field(default_factory=dict)
    unplaced: tuple[tuple[str, Exit, Utterance], ...] = ()
    """Ends of processes of which only the node is known."""

    def of(self, *voices: Voice) -> list[Utterance]:
        """Utterances of ranks with one of these voices that are not normal for the fleet, in order of time and rank."""
        chosen = [u for u in self.utterances if u.rank is not None and u.voice in voices and not u.is_normal]
        return sorted(chosen, key=lambda u: (u.first_at or 0.0, u.rank or 0, u.template_id))

    def unranked(self, each: Voice) -> list[Utterance]:
        """Exceptions and alerts with this voice of which nobody knows the rank, ends of processes left out."""
        chosen = [
            u for u in self.utterances
            if u.rank is None and (u.raised or u.alert) and not u.exits and not u.is_normal and u.voice is each
        ]  # fmt: skip
        return sorted(chosen, key=lambda u: (u.first_at or 0.0, u.node or "", u.template_id))

    @cached_property
    def peers(self) -> list[int]:
        """Ranks that ought to speak: those of the topology, else those seen."""
        known = {place.rank for place in self.job.places} or set(range(self.job.world_size or 0))
        return sorted(known or {u.rank for u in self.utterances if u.rank is not None} | set(self.ends))

    @cached_property
    def first_failure_at(self) -> float | None:
        """When the first process ended badly or the first error of any kind was printed with a trustworthy time."""
        ends = [end.at for end in self.ends.values() if end.at is not None and not end.exit.is_orderly]
        said = [
            u.first_at
            for u in self.of(Voice.ORIGIN, Voice.CASCADE, Voice.WAITING)
            if u.raised and u.first_at is not None and u.uncertainty_s <= TIE_S
        ]
        return min([*ends, *said], default=None)


def words_of(job: Job, utterances: Sequence[Utterance]) -> Words:
    """Sort out who ended how; of several reports of one rank, the first that is not orderly counts, else the first."""
    ends: dict[int, End] = {}
    unplaced: list[tuple[str, Exit, Utterance]] = []
    utterances = [placed(job, said) for said in utterances]
    for said in sorted(utterances, key=lambda u: (u.first_at or 0.0, u.node or "", u.template_id)):
        for each in said.exits:
            rank = each.rank if each.rank is not None else _only_rank(job, said, each)
            if rank is None:
                if (host := each.host or said.node) is not None:
                    unplaced.append((host, each, said))
                continue
            at = _when(each, said)
            known = ends.get(rank)
            if (
                known is None
                or (known.exit.is_orderly and not each.is_orderly)
                or (known.exit.code == each.code and _is_finer(at, known.at))
            ):
                is_first = each.is_first or (known is not None and known.exit.code == each.code and known.exit.is_first)
                ends[rank] = End(rank, replace(each, is_first=is_first), at, said.ref, said.template_id)
    return Words(job, tuple(utterances), ends, tuple(unplaced))


def placed(job: Job, said: Utterance) -> Utterance:
    """With its rank, where its node has but one and no launcher speaks: a pod, a host with one process."""
    if said.rank is not None or said.node is None or said.stream == "agent" or said.role == "launcher" or said.exits:
        return said
    ranks = job.ranks_on((said.node,))
    return replace(said, rank=ranks[0]) if len(ranks) == 1 and len(job.places) > 1 else said


def _only_rank(job: Job, said: Utterance, each: Exit) -> int | None:
    """Rank of an end that names none: by local rank, else the only one of its host."""
    if each.local_rank is not None:
        return job.rank_at(each.host or said.node, each.local_rank)
    ranks = job.ranks_on((each.host or said.node or "",))
    return ranks[0] if len(ranks) == 1 else None


def _when(each: Exit, said: Utterance) -> float | None:
    """When a process ended, by the corrected clock of its node.

    The launcher's log stamp is finer than the whole seconds inside its report, unless it was made much later. A report
    that is half an hour and more off the stamp is in another time zone and is not believed.
    """
    at = None if each.at is None else each.at - said.offset_s
    if at is None or said.first_at is None:
        return said.first_at if at is None else at
    apart = abs(said.first_at - at)
    if apart >= OTHER_ZONE_S:
        return said.first_at
    return min(said.first_at, at + 1.0) if apart <= TIE_S else at


def _is_finer(new: float | None, old: float | None) -> bool:
    return new is not None and (old is None or (new % 1 > 0 and old % 1 == 0))
