"""Passwords that stand on command lines, and keys in any case, are replaced; what only looks like them stays."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest

from jobs.adapters import fast_limits, redaction
from jobs.adapters.fast_words import automaton

PW = "s3cr3tPw9"
SECRETS = [
    f"curl -u bob:{PW} https://h/x",
    f"curl -s --user 'bob:{PW}' https://h",
    f"curl --user=bob:{PW} h",
    f"curl -ubob:{PW} h",
    "curl -u 1000:73217321 h",  # a password of digits
    f"Command '['curl', '-u', 'bob:{PW}', 'https://h']' returned non-zero exit status 22.",
    f"wget --password={PW} h",
    f"wget --user bob --http-password '{PW} two' h",
    f"mysql -h db -u root -p{PW} runs",
    f"mysqldump -p'{PW}' x",
    f"sshpass -p {PW} ssh h",
    f"sshpass -p{PW} ssh h",
    f'["sshpass", "-p", "{PW}", "ssh"]',
    f"SSHPASS={PW} sshpass -e ssh",
    f"MYSQL_PWD={PW} mysql",
    f"redis-cli -h x -a {PW} ping",
    f"docker login -u bob -p {PW} nvcr.io",
    f"ldapsearch -x -D cn=a -w {PW} -b x",
    f"unzip -P {PW} f.zip",
    f"mongodump -u a -p {PW}",
    f"keytool -storepass {PW}",
    f"python train.py --wandb-token {PW} --lr 1",
    f"huggingface-cli login --token {PW}",
    f"wandb login --relogin {PW * 3}",
    f"apiKey={PW}",
    f"X-Api-Key: {PW}",
    f"accessToken: {PW}",
    "db password: 73217321",
]
INNOCENT = [
    "docker run -u 1000:1000 img",
    "docker run --user 1000:1000 img",
    "podman run --rm -u app:app img",
    "python -u train.py:main -x",
    "--tokenizer-type GPT2BPE --tokenizer-model x",
    "--max-tokens 4096 --num-token 100",
    "--pad-token <pad>",
    "mysql -p -u root runs",
    "['mysql', '-p', 'runs']",
    "pwd=/workspace/x",
    "tokens per second: 123456",
    "gpu-util: 97",
    "x264 --pass 2",
    "ssh -p 22 host",
    "mpirun -np 8 -x A=b",
]


@pytest.mark.parametrize("line", SECRETS)
def test_35_a_password_on_a_command_line_is_replaced(line):
    clean = redaction.redact(line)
    assert not any(secret in clean for secret in (PW, "73217321", "two"))
    assert redaction.redact(clean) == clean
    assert redaction.redact_array(pa.array([line]), Counter())[0].as_py() == clean


@pytest.mark.parametrize("line", INNOCENT)
def test_35_what_only_looks_like_a_password_stays(line):
    assert redaction.redact(line) == line


@pytest.mark.parametrize("change", [str, str.upper, str.lower, str.title])
def test_35_the_fast_lane_takes_no_line_for_plain_that_a_rule_would_change(change):
    table, is_end = automaton()
    for line in map(change, SECRETS):
        state, found = 0, 0
        for byte in line.encode():
            state = table[state, byte]
            found = max(found, is_end[state])
        assert found or redaction.redact(line) == line, line


def test_35_no_password_passes_through_the_fast_lane(job, read, monkeypatch):
    monkeypatch.setattr(fast_limits, "MIN_BYTES", 1000)
    monkeypatch.setattr(fast_limits, "MIN_BYTES_LOADED", 1000)
    plain = [f"2026-11-30 03:00:00.{i % 1000:03d} [rank0] plain words {i}" for i in range(1000)]
    text = "\n".join(plain[:500] + [f"2026-11-30 03:00:00.500 [rank0] {line}" for line in SECRETS] + plain[500:])
    rows = read(job({"logs/rank0.log": text + "\n"}))
    assert len(rows["log_records"]) == 1000 + len(SECRETS)
    whole = json.dumps(rows, default=str)
    assert PW not in whole
    assert "73217321" not in whole
