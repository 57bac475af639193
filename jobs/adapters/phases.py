"""Which phase of the training a message begins or ends, and in which state it says that the job ended."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PHASES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (phase, hint, re.compile(pattern))
    for phase, hint, pattern in (
        ("checkpoint", "aving", r"(?i)\bsaving (?:model |the )?(?:checkpoint|state)|^saving (?:model|latest)"),
        (
            "load",
            "oad",
            r"(?i)\bloading (?:checkpoint|model|weights|dataset|data|cached|tokenizer|file|states?|pretrained)"
            r"|\bload(?:ing|ed) .{0,40}checkpoint|successfully loaded",
        ),
        ("load", "uilding", r"(?i)\bbuilding .{0,40}(?:dataset|dataloader|tokenizer|index|corpus)"),
        ("load", "pening", r"(?i)^opening (?:shard|data|file)"),
        (
            "train",
            "raining",
            r"(?i)^(?:\W{0,8}training (?:\.\.\.|started|begins)|\W{0,8}(?:start(?:ing|ed)?|begin(?:ning)?|running)"
            r" (?:the )?training|\[before the start of training step|\W{0,8}running training)",
        ),
        (
            "evaluate",
            "val",
            r"(?i)^\W{0,8}(?:start(?:ing)? |running |begin |end of )?(?:evaluat|validat|eval[ _:])|^validation loss",
        ),
        ("exit", "exiting", r"(?i)\bexiting program|^exiting\b|main process received SIG"),
        (
            "exit",
            "raining",
            r"(?i)after training is done|training (?:is )?(?:completed|complete|finished|done)\b|^finished training",
        ),
        ("exit", "losing signal", r"Sending process \d{1,8} closing signal"),
        ("exit", "slurmstepd", r"slurmstepd: error: \*{3}"),
        ("exit", "estroy", r"(?i)destroy(?:ing)?[ _]process[ _]group"),
    )
)
_SAVED = re.compile(r"(?i)(?:successfully saved|saved checkpoint|checkpoint (?:was )?saved|saved model)")
_ML_PHASES = {
    "init_start": "init",
    "init_stop": "load",
    "run_start": "train",
    "epoch_start": "train",
    "block_start": "train",
    "eval_start": "evaluate",
    "eval_stop": "train",
    "run_stop": "exit",
    "save_checkpoint_start": "checkpoint",
    "save_checkpoint_stop": "train",
}


def says_no_phase(message: str) -> bool:
    """Whether a message neither begins nor ends a phase."""
    return not _SAVED.search(message[:200]) and not any(pattern.search(message[:300]) for _, _, pattern in _PHASES)


@dataclass
class PhaseTracker:
    """The phase of one writer: what its own lines say, one after the other."""

    phase: str = "init"
    _before: str = "init"

    def see(self, message: str) -> str:
        """The phase in which this message was printed; what it begins or ends counts from here on."""
        if "aved" in message and _SAVED.search(message[:200]):
            now, self.phase = "checkpoint", self._before
            return now
        for phase, hint, pattern in _PHASES:
            if hint in message and pattern.search(message[:300]):
                return self.enter(phase)
        return self.phase

    def enter(self, phase: str) -> str:
        """Begin a phase; a checkpoint returns to the phase that it interrupted."""
        if phase == "checkpoint" and self.phase != "checkpoint":
            self._before = self.phase
        if phase == "load" and self.phase in ("train", "evaluate", "checkpoint"):
            return self.phase
        if self.phase != "exit" or phase == "train":
            self.phase = phase
        return self.phase

    def mlperf(self, key: str) -> str:
        """The same for an MLLOG key."""
        phase = _ML_PHASES.get(key)
        return self.enter(phase) if phase else self.phase


_ENDS: tuple[tuple[str, str, str], ...] = (
    ("TIMEOUT", "TIME LIMIT", "the scheduler ended it at its time limit"),
    ("NODE_FAIL", "NODE FAILURE", "the scheduler ended it for a node failure"),
    ("PREEMPTED", "DUE TO PREEMPTION", "the scheduler preempted it"),
    ("OUT_OF_MEMORY", "oom_kill event", "the kernel killed it for memory"),
    ("OUT_OF_MEMORY", "oom-kill event", "the kernel killed it for memory"),
    ("CANCELLED", "CANCELLED AT", "it was cancelled"),
)
_FAILURE = re.compile(
    r"ChildFailedError|^srun: error: .{0,80}(?:Exited with exit code [1-9]|Killed|Aborted|Segmentation|Bus error)"
    r"|exits with return code = -?[1-9]|CalledProcessError"
)
_SUCCESS = re.compile(
    r"(?i)after training is done|exiting program at iteration|training (?:is )?(?:completed|finished)|\btrain"
    r" metrics \*|^finish(?:ed)? \d{1,6} tasks? in|\"key\": \"run_stop\".{0,200}\"status\": \"success\""
)


def end_of(message: str) -> str | None:
    """The state in which a message says that the whole job ended, in Slurm's words."""
    if "slurmstepd" in message or "CANCELLED" in message or "oom" in message:
        for state, words, _ in _ENDS:
            if words in message:
                return state
    if ("rror" in message or "exits with" in message) and _FAILURE.search(message[-4000:]):
        return "FAILED"
    if (
        "inish" in message or "raining" in message or "exiting" in message or "train metrics" in message or "run_stop" in message
    ) and _SUCCESS.search(message[:400]):
        return "COMPLETED"
    return None
