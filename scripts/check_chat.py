"""Types into hone chat --server through tmux and checks what its screen shows. scripts/check_chat.sh runs this.
  check_chat.py HONE FOLDER   FOLDER: an empty folder"""
import http.server
import json
import os
import shlex
import subprocess
import sys
import threading
import time

HONE, FOLDER = sys.argv[1:3]
TMUX = ["tmux", "-L", f"hone-check-{os.getpid()}", "-f", "/dev/null"]


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    bodies = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.respond("application/json", [b'{"data": [{"id": "tiny"}]}'])

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Server.bodies.append(body)
        question = body["messages"][-1]["content"]
        parts = [{"reasoning": "Let me "}, {"reasoning": "see."}, {"content": f"\n\nYou said: {question}"}]
        if question == "endless":
            parts = [{"content": f"{i} "} for i in range(100_000)]
        if question == "half":
            return self.respond("text/event-stream", [self.event({"content": "only a part"})])
        self.respond("text/event-stream", [self.event(part) for part in parts] + [self.event({}, "stop"), b"data: [DONE]\n\n"])

    @staticmethod
    def event(delta, reason=None):
        return b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": reason}]}).encode() + b"\n\n"

    def respond(self, kind, parts):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        try:
            for part in parts:
                self.wfile.write(part)
                time.sleep(0.02)
        except OSError:
            pass


def tmux(*arguments):
    return subprocess.run(TMUX + list(arguments), check=True, capture_output=True, text=True).stdout


def screen():
    return tmux("capture-pane", "-p", "-J", "-S", "-200", "-t", "chat")


def sees(text, seconds=20):
    end = time.monotonic() + seconds
    while text not in screen():
        assert time.monotonic() < end, f"not on the screen: {text}\n{screen()}"
        time.sleep(0.05)


def type_line(text):
    tmux("send-keys", "-t", "chat", "-l", text)
    tmux("send-keys", "-t", "chat", "Enter")


def start(arguments):
    command = shlex.join(["env", f"HONE_CACHE={FOLDER}/cache", HONE, "chat", *arguments]) + "; echo code $?; sleep 600"
    tmux("new-session", "-d", "-s", "chat", "-x", "100", "-y", "40", command)


def end():
    type_line("/quit")
    sees("code 0")
    tmux("kill-session", "-t", "chat")


def check_conversation(url):
    start(["--server", url])
    sees("chatting with tiny on")
    type_line("Hello, naïve 日本 🙂")
    sees(", 11 characters; /thoughts shows them)")
    sees("You said: Hello, naïve 日本 🙂")
    type_line("/thoughts")
    sees("Let me see.")
    type_line("one \\")
    type_line("two")
    sees("You said: one")
    assert Server.bodies[-1]["messages"][-1]["content"] == "one \ntwo", Server.bodies[-1]
    assert len(Server.bodies[-1]["messages"]) == 3
    type_line("/set temperature 0.25")
    type_line("/clear")
    type_line("after")
    sees("You said: after")
    assert Server.bodies[-1]["temperature"] == 0.25 and len(Server.bodies[-1]["messages"]) == 1
    type_line("half")
    sees("the answer has ended early")
    type_line("endless")
    sees("200 201 202")
    tmux("send-keys", "-t", "chat", "C-c")
    sees("(stopped; press Ctrl+C again or Ctrl+D to leave)")
    type_line("last message")
    sees("You said: last message")
    end()


def check_history(url):
    start(["--server", url])
    sees("> ")
    tmux("send-keys", "-t", "chat", "Up", "Up")
    sees("> last message")
    tmux("send-keys", "-t", "chat", "Enter")
    sees("You said: last message")
    end()


def check_dead(url):
    start(["--server", url])
    sees("code 1")
    text = screen()
    assert text.count("hone: ") == 1 and "gives no answer" in text, text
    tmux("kill-session", "-t", "chat")


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        for check in (check_conversation, check_history):
            check(url)
            print(f"chat: {check.__name__} passes", flush=True)
        server.shutdown()
        server.server_close()
        check_dead(url)
        print("chat: check_dead passes")
    finally:
        subprocess.run(TMUX + ["kill-server"], capture_output=True)


main()
