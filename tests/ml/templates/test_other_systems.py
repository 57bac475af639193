"""Logs of systems that the accuracy benchmark does not have, written by hand: one template a form, with one configuration."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from ml.templates.library import Library, grown
from ml.templates.masking import masked_messages

SYSTEMS = {
    "Hadoop": [
        "Created MRAppMaster for application appattempt_{big}_{n}_000001", "Using mapred newApiCommitter.", "OutputCommitter set in config null",
        "Kind: YARN_AM_RM_TOKEN, Service: , Ident: (appAttemptId {{ application_id {{ id: {n} cluster_timestamp: {big} }} attemptId: 1 }} keyId: -{big})",
        "Registering class org.apache.hadoop.mapreduce.v2.app.job.event.{Word}EventType for class org.apache.hadoop.mapreduce.v2.app.{Word}Dispatcher",
        "Default file system [hdfs://{host}:9000]", "Adding job token for job_{big}_{n} to jobTokenSecretManager", "Input size for job job_{big}_{n} = {big}. Number of splits = {n}",
        "Number of reduces for job job_{big}_{n} = {n}", "job_{big}_{n}Job Transitioned from NEW to INITED", "job_{big}_{n}Job Transitioned from INITED to SETUP",
        "Starting Socket Reader #1 for port {port}", "IPC Server Responder: starting", "IPC Server listener on {port}: starting",
        "attempt_{big}_{n}_m_{n}_0 TaskAttempt Transitioned from NEW to UNASSIGNED", "attempt_{big}_{n}_m_{n}_0 TaskAttempt Transitioned from ASSIGNED to RUNNING",
        "task_{big}_{n}_m_{n} Task Transitioned from NEW to SCHEDULED", "Progress of TaskAttempt attempt_{big}_{n}_m_{n}_0 is : {f}",
        "Assigned container container_{big}_{n}_01_{n} to attempt_{big}_{n}_m_{n}_0",
        "Retrying connect to server: {host}/{ip}:8030. Already tried {n} time(s); retry policy is RetryUpToMaximumCountWithFixedSleep(maxRetries=10, sleepTime=1000 MILLISECONDS)",
        "Address change detected. Old: {host}/{ip}:9000 New: {host}:9000", "DFSOutputStream ResponseProcessor exception  for block BP-{big}-{ip}-{big}:blk_{big}_{n}",
        "ERROR IN CONTACTING RM.", "Recalculating schedule, headroom=<memory:{n}, vCores:-{n}>", "Reduce slow start threshold not met. completedMapsForReduceSlowstart {n}",
    ],
    "Spark": [
        "Saved output of task 'attempt_{big}_{n}_m_{n}_{n}' to hdfs://{ip}:9000/{path}/_temporary/0/task_{big}_{n}_m_{n}", "Found block rdd_{n}_{n} locally",
        "Running task {n}.0 in stage {n}.0 (TID {n})", "Finished task {n}.0 in stage {n}.0 (TID {n}). {n} bytes result sent to driver", "Got assigned task {n}",
        "Started reading broadcast variable {n}", "Reading broadcast variable {n} took {n} ms", "Block broadcast_{n} stored as values in memory (estimated size {f} KB, free {f} KB)",
        "Block broadcast_{n}_piece0 stored as bytes in memory (estimated size {f} KB, free {f} KB)", "Input split: hdfs://{ip}:9000/{path}/a.log:{n}+{n}",
        "Partition rdd_{n}_{n} not found, computing it", "Times: total = {n}, boot = {n}, init = {n}, finish = {n}", "Changing view acls to: yarn,curi",
        "Connecting to driver: spark://CoarseGrainedScheduler@{ip}:{port}", "Successfully registered with driver", "Starting executor ID {n} on host {host}",
        "MemoryStore started with capacity {f} GB", "Executor is trying to kill task {n}.0 in stage {n}.0 (TID {n})", "Removing RDD {n}", "Created local directory at {path}/blockmgr-{uuid}",
    ],
    "HPC": [
        "PSU status ( {onoff} {onoff} )", "Fan speeds ( {n} {n} {n} {n} {n} {n} )", "ambient={n}", "Temperature ({n}C) exceeds warning threshold",
        "ServerFileSystem: An ServerFileSystem domain panic has occurred on storage{n}", "Link error on broadcast tree Interconnect-{n}T{n}:{n}:{n}:{n}", "boot (command {n})",
        "wait (command {n})", "Targeting domains:node-D{n} and nodes:node-[{n}-{n}] child of command {n}", "Link in reset", "Linkerror event interval expired",
        "configured out", "new entity", "risBoot command ERROR: node-{n}", "running running",
    ],
    "Proxifier": [
        "{host}.com:443 close, {n} bytes sent, {n} bytes received, lifetime {clock}",
        "{host}.com:443 open through proxy proxy.example.edu:5070 HTTPS",
        "{host}.com:443 error : Could not connect through proxy proxy.example.edu:5070 - Proxy server cannot establish a connection with the target, status code 403",
        "{host}.com:80 open directly",
    ],
    "OpenStack": [
        '{ip} "GET /v2/{hex32}/servers/detail HTTP/1.1" status: 200 len: {n} time: {f}', '{ip} "POST /v2/{hex32}/os-server-external-events HTTP/1.1" status: 200 len: {n} time: {f}',
        '{ip} "DELETE /v2/{hex32}/servers/{uuid} HTTP/1.1" status: 204 len: {n} time: {f}',
        "[instance: {uuid}] VM Started (Lifecycle Event)", "[instance: {uuid}] VM Paused (Lifecycle Event)", "[instance: {uuid}] VM Resumed (Lifecycle Event)",
        "[instance: {uuid}] Took {f} seconds to build instance.", "[instance: {uuid}] Took {f} seconds to spawn the instance on the hypervisor.", "[instance: {uuid}] Creating image",
        "image {uuid} at (/var/lib/nova/instances/_base/{hex40}): checking", "image {uuid} at (/var/lib/nova/instances/_base/{hex40}): in use: on this node {n} local, {n} on other nodes sharing this instance storage",
        "Active base files: /var/lib/nova/instances/_base/{hex40}", "[instance: {uuid}] Terminating instance", "[instance: {uuid}] Deleting instance files /var/lib/nova/instances/{uuid}_del",
        "[instance: {uuid}] Instance destroyed successfully.", "[instance: {uuid}] Attempting claim: memory {n} MB, disk {n} GB, vcpus {n} CPU", "[instance: {uuid}] Claim successful",
        "[instance: {uuid}] Total memory: {n} MB, used: {f} MB", "Auditing locally available compute resources for node {host}.cloudlab.us", "Final resource view: name={host}.cloudlab.us phys_ram={n}MB used_ram={n}MB phys_disk={n}GB used_disk={n}GB total_vcpus={n} used_vcpus={n} pci_stats=[]",
        "[instance: {uuid}] During sync_power_state the instance has a pending task (spawning). Skip.",
    ],
}  # fmt: skip
WORDS = ["Job", "Task", "Speculator", "Container", "Rm", "Cleaner", "Launcher", "Committer"]


def filled(form: str, draw: random.Random) -> str:
    """A line of a form: every slot drawn by itself."""
    slots = {
        "n": lambda: str(draw.randrange(1, 9000)), "big": lambda: str(draw.randrange(10**12, 10**13)), "f": lambda: f"{draw.random() * 100:.3f}",
        "ip": lambda: f"10.{draw.randrange(255)}.{draw.randrange(255)}.{draw.randrange(255)}", "port": lambda: str(draw.randrange(1024, 65535)),
        "host": lambda: f"msra-sa-{draw.randrange(99)}", "uuid": lambda: f"{draw.getrandbits(32):08x}-{draw.getrandbits(16):04x}-4{draw.getrandbits(12):03x}-a{draw.getrandbits(12):03x}-{draw.getrandbits(48):012x}",
        "hex32": lambda: f"{draw.getrandbits(128):032x}", "hex40": lambda: f"{draw.getrandbits(160):040x}", "path": lambda: f"data/part{draw.randrange(99)}/x",
        "clock": lambda: f"{draw.randrange(24):02d}:{draw.randrange(60):02d}", "onoff": lambda: draw.choice(["on", "off"]), "Word": lambda: draw.choice(WORDS),
    }  # fmt: skip
    text = form.replace("{{", "\0").replace("}}", "\1")
    for name, value in slots.items():
        while f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", value(), 1)
    return text.replace("\0", "{").replace("\1", "}")


def grouped_right(forms: list[str], n_each: int = 8) -> tuple[float, list[str]]:
    """Share of lines whose group is exactly the lines of their form (grouping accuracy), and the forms that are not."""
    draw = random.Random(1)
    truth = [number for number in range(len(forms)) for _ in range(n_each)]
    masked = masked_messages([filled(forms[number], draw) for number in truth])
    library = grown(Library(), masked)
    found = [library.messages[text] for text in masked]
    of_form, of_template = defaultdict(set), defaultdict(set)
    for line, (number, name) in enumerate(zip(truth, found)):
        of_form[number].add(line)
        of_template[name].add(line)
    right = [of_form[number] == of_template[name] for number, name in zip(truth, found)]
    return sum(right) / len(right), [forms[number] for number in of_form if not right[number * n_each]]


@pytest.mark.parametrize("system", SYSTEMS)
def test_systems_that_were_never_looked_at_are_grouped_by_their_forms(system):
    share, wrong = grouped_right(SYSTEMS[system])
    # Below one by choice: words that say a state ("on", "off") are never merged.
    assert share >= 0.93, wrong
