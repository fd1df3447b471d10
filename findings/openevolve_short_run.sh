#!/usr/bin/env bash
# openevolve 0.4.1: a run with fewer iterations than checkpoint_interval (100 by default) ends without any checkpoint,
# although all of them ran: --checkpoint has nothing to go on from, and every program but the best one is lost.
. "$(dirname "$0")/environment.sh"
in_environment openevolve==0.4.1 <<'PYTHON'
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

REPLY = "<<<<<<< SEARCH\nx = 1\n=======\nx = 1  # as before\n>>>>>>> REPLACE\n"


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": REPLY}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"id": "a", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *words):
        pass


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
Path("initial_program.py").write_text("x = 1\n")
Path("evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 0.5}\n")
address = f"http://127.0.0.1:{server.server_port}/v1"


def checkpoints(name, more):
    """What a run of three iterations leaves behind."""
    Path(f"{name}.yaml").write_text(f"llm:\n  primary_model: m\n  api_base: {address}\n{more}")
    command = [sys.executable, "-m", "openevolve.cli", "initial_program.py", "evaluator.py"]
    command += ["--config", f"{name}.yaml", "--iterations", "3", "--output", name]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OPENAI_API_KEY": "none"})
    assert Path(name, "best", "best_program.py").is_file()
    return sorted(path.name for path in Path(name).glob("checkpoints/*"))


plain, short = checkpoints("plain", ""), checkpoints("short", "checkpoint_interval: 1\n")
print("by default:", plain, "with checkpoint_interval 1:", short)
assert plain == []
assert short[-1] == "checkpoint_3", short
PYTHON
