#!/usr/bin/env python3
"""examples/python/ray_serve.py with two replicas of the built-in model: 200 requests, half of them streams, and one
replica killed in the middle. Every request must be answered with the text of a model alone.

    python python/tests/check_ray.py           (needs ray[serve] and inferno; loopback only)
"""

import concurrent.futures
import json
import os
import pathlib
import signal
import sys
import time
import urllib.request

import ray
from ray import serve

import inferno

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = str(ROOT / "examples" / "python")
sys.path.insert(0, EXAMPLES)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [EXAMPLES, os.environ.get("PYTHONPATH")]))  # for Ray's processes
import ray_serve  # noqa: E402

PORT = int(os.environ.get("INFERNO_RAY_PORT", "8765"))
REQUESTS = 200


def ask(i):
    body = {"prompt": f"Story {i % 20}: once upon a time", "max_tokens": 48, "temperature": 0.8, "seed": i,
            "stream": i % 2 == 0}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=300) as response:
        if not body["stream"]:
            return json.load(response)["choices"][0]["text"]
        text = ""
        for line in response:
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise RuntimeError(chunk["error"]["message"])
                text += chunk["choices"][0]["text"]
        return text


def pids():
    """Processes of replicas."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if b"ServeReplica:default:Replica" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (OSError, ValueError):
            pass
    return found


def main():
    with inferno.Llm.builtin() as llm:
        expected = [llm.submit(f"Story {i % 20}: once upon a time", max_tokens=48, temperature=0.8, seed=i)
                    for i in range(REQUESTS)]
        expected = [generation.result().text for generation in expected]
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(ray_serve.application(None, 2, 2, 1))
    before = pids()
    assert len(before) == 2, f"{len(before)} replicas"
    wrong, killed = 0, None
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(ask, i) for i in range(REQUESTS)]
        while sum(answer.done() for answer in answers) < REQUESTS // 4:
            time.sleep(0.02)
        killed = before[0]
        os.kill(killed, signal.SIGKILL)
        for i, answer in enumerate(answers):
            try:
                wrong += answer.result() != expected[i]
            except Exception as error:  # noqa: BLE001
                wrong += 1
                print(f"request {i}: {error}")
    time.sleep(1)
    print(f"{REQUESTS} requests, replica {killed} of {before} killed after {REQUESTS // 4}: {wrong} wrong or unanswered")
    serve.shutdown()
    ray.shutdown()
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
