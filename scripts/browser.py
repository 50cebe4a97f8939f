"""Headless Chromium through the DevTools protocol, for check_page.py and check_watch.py. Needs the package websockets."""
import base64
import http.client
import json
import pathlib
import re
import subprocess
import threading
import time

from websockets.sync.client import connect


class Browser:
    def __init__(self, folder, pictures):
        self.pictures = pictures
        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
             "--no-first-run", f"--user-data-dir={folder}/profile", "about:blank"],
            stderr=subprocess.PIPE, text=True)
        while not (found := re.search(r"ws://([\d.:]+)/", self.process.stderr.readline())):
            pass
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        connection = http.client.HTTPConnection(found[1])
        connection.request("GET", "/json")
        page = next(one for one in json.loads(connection.getresponse().read()) if one["type"] == "page")
        self.socket = connect(page["webSocketDebuggerUrl"], max_size=None)
        self.count, self.requests, self.problems = 0, [], []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=30))
            if message.get("method") == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            if message.get("method") == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(message["params"]["exceptionDetails"])[:600])
            if message.get("method") == "Log.entryAdded" and "Security" in message["params"]["entry"]["text"]:
                self.problems.append(message["params"]["entry"]["text"])
            if message.get("id") == self.count:
                return message["result"]

    def run(self, script):
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (script, result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, script, seconds=30):
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}\n{self.run('document.body.innerText')}"
            time.sleep(0.05)

    def key(self, name, modifiers=0, code=None):
        text = {"Enter": "\r"}.get(name, "")
        number = {"Enter": 13, "Escape": 27, "Tab": 9, "k": 75, "n": 78}[name]
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=code or name, modifiers=modifiers,
                      windowsVirtualKeyCode=number, **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        self.send("Input.insertText", text=text)

    def size(self, width, height):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, name):
        if self.pictures:
            time.sleep(0.4)
            data = self.send("Page.captureScreenshot", format="png")["data"]
            pathlib.Path(self.pictures, f"{name}.png").write_bytes(base64.b64decode(data))

    def show(self, theme, width, height):
        """Sets colors and size, and checks that nothing is wider than the window."""
        if self.run("document.documentElement.dataset.theme") != theme:
            self.run("document.getElementById('theme').click()")
        self.size(width, height)
        assert self.run("document.documentElement.scrollWidth") <= width, (theme, width)
