"""Uses the page of hone serve in headless Chromium through the DevTools protocol. scripts/check_page.sh runs this.
  check_page.py HONE FOLDER [PICTURES]   FOLDER has the folder `model` of a small model
A relay between browser and server answers chosen messages with fixed texts, and passes everything else on."""
import http.client
import http.server
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

from browser import Browser

HONE, FOLDER, PICTURES = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
HOSTILE = ('<script>window.hit=1</script> <img src=x onerror="window.hit=1"> [a](javascript:window.hit=1) '
           '![b](http://example.com/b.png) [c](data:text/html,x) <a href="javascript:window.hit=1">d</a>\n\n'
           '```html\n<script>window.hit=1</script>\n```\n\n$\\text{<img src=x onerror=window.hit=1>}$')
RICH = r"""A number is prime if it has **no divisor** between 2 and its square root, so it suffices to test those.

```python
def is_prime(n: int) -> bool:
    # Only divisors up to the square root matter.
    if n < 2:
        return False
    return all(n % d != 0 for d in range(2, int(n ** 0.5) + 1))
```

By the prime number theorem, the primes up to $x$ number about $\frac{x}{\ln x}$:

$$\pi(x) \sim \int_2^x \frac{dt}{\ln t}, \qquad \zeta(s) = \sum_{n=1}^{\infty} \frac{1}{n^s} = \prod_{p} \frac{1}{1 - p^{-s}}$$

| $x$ | primes | estimate |
|---|---|---|
| 100 | 25 | 22 |
| 10,000 | 1,229 | 1,086 |

1. Test small divisors first.
2. Use `pow(a, n - 1, n)` for *large* numbers.
"""
FIXED = {"hostile": ("", HOSTILE), "How do I test whether a number is prime?": (
    "The user asks for a primality test. Trial division up to the square root is enough.", RICH)}


class Relay(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    upstream = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.pass_on("GET", None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body)
        fixed = FIXED.get(request["messages"][-1]["content"])
        if fixed is None:  # without end-of-sequence tokens, an answer lasts until it is stopped
            return self.pass_on("POST", json.dumps(request | {"ignore_eos": True}))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for name, text in zip(("reasoning", "content"), fixed):
            for part in re.findall(r"[\s\S]{1,9}", text):
                self.event({"choices": [{"index": 0, "delta": {name: part}, "finish_reason": None}]})
                time.sleep(0.004)
        self.event({"choices": [], "usage": {"completion_tokens": 187}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def pass_on(self, method, body):
        try:
            server = http.client.HTTPConnection(Relay.upstream)
            server.request(method, self.path, body, {"Content-Type": "application/json"})
            answer = server.getresponse()
        except OSError:
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date"):
                self.send_header(name, value)
        self.end_headers()
        try:
            while part := answer.read1(512):
                self.wfile.write(part)
                time.sleep(0.01)  # the small model is faster than a browser that shares two cores with it
        except OSError:
            server.close()


def start_server():
    log = FOLDER / "log"
    with open(log, "w") as errors:
        server = subprocess.Popen([HONE, "serve", str(FOLDER / "model"), "--served_model_name", "small", "--port", "0", "--runs", str(FOLDER)],
                                  stderr=errors)
    while not (found := re.search(r"http://([\d.:]+)", log.read_text())):
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    Relay.upstream = found[1]
    return server


IDLE = "!document.body.classList.contains('running')"
BUSY = "document.body.classList.contains('running')"
COUNT = "document.querySelectorAll('.message').length"
LAST = "document.querySelector('.message:last-child')"


def click(browser, scope, name):
    browser.run(f"[...{scope}.querySelectorAll('button')].find((b) => b.textContent === {json.dumps(name)}).click()")


def set_length(browser, tokens):
    browser.run(f"document.getElementById('max_tokens').value = '{tokens}'")


def check_conversation(browser):
    browser.key("n", 1, "KeyN")
    set_length(browser, 40)
    browser.type("What is 1 + 2?")
    browser.key("Enter")
    browser.wait(f"{IDLE} && {COUNT} === 2 && {LAST}.innerText.includes('tokens/s')")
    set_length(browser, 30000)
    click(browser, LAST, "Regenerate")
    browser.wait(f"{BUSY} && {LAST}.querySelector(':scope > .text').textContent.length > 20")
    browser.key("Escape")
    browser.wait(f"{IDLE} && {LAST}.innerText.includes('stopped')")
    assert "2/2" in browser.run(f"{LAST}.innerText")
    set_length(browser, 40)
    click(browser, "document.querySelector('.user')", "Edit")
    browser.run("document.querySelector('.user textarea').value = 'What is 3 + 4?'")
    browser.key("Enter")
    browser.wait(f"{IDLE} && {COUNT} === 2 && document.querySelector('.user').innerText.includes('3 + 4')")
    assert "2/2" in browser.run("document.querySelector('.user').innerText")
    click(browser, "document.querySelector('.user')", "‹")
    browser.wait("document.querySelector('.user').innerText.includes('1 + 2')")


def check_history(browser):
    browser.send("Page.reload")
    browser.wait("document.querySelectorAll('.entry').length === 3")
    browser.key("k", 2, "KeyK")
    browser.type("nothing has this")
    browser.wait("document.querySelectorAll('.entry').length === 0")
    browser.run("(() => { const s = document.getElementById('search'); s.value = '3 + 4'; s.oninput(); })()")
    browser.wait("document.querySelectorAll('.entry').length === 1")
    browser.run("document.querySelector('.entry .title').click()")
    browser.wait(f"{COUNT} === 2")
    browser.key("n", 1, "KeyN")
    browser.wait(f"{COUNT} === 0")


def check_rendering(browser):
    browser.type("How do I test whether a number is prime?")
    browser.key("Enter")
    browser.wait(f"{IDLE} && {COUNT} === 2 && {LAST}.innerText.includes('187 tokens')")
    for selector in ("math mfrac", "math munderover", ".code .kw", ".code .com", "table td", "ol li code", "strong"):
        assert browser.run(f"{LAST}.querySelector({json.dumps(selector)}) !== null"), selector
    assert "Thought for" in browser.run(f"{LAST}.querySelector('summary').textContent")
    browser.run(f"{LAST}.querySelector('details').open = true")
    browser.wait(f"{LAST}.querySelector('details').textContent.includes('Trial division')")
    browser.run(f"{LAST}.querySelector('details').open = false")
    for theme in ("light", "dark"):
        for width, height in ((1280, 860), (390, 844)):
            browser.show(theme, width, height)
            browser.run("document.getElementById('scroll').scrollTop = 0")
            browser.picture(f"page-{theme}-{width}")
    dark = browser.run("getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(23, 24, 26)", dark
    browser.size(1280, 860)
    browser.run("document.getElementById('theme').click()")


def check_hostile(browser):
    browser.key("n", 1, "KeyN")
    browser.type("hostile")
    browser.key("Enter")
    browser.wait(f"{IDLE} && {COUNT} === 2 && {LAST}.innerText.includes('187 tokens')")
    time.sleep(0.5)
    assert browser.run("window.hit") is None
    assert browser.run(f"{LAST}.querySelectorAll('.text script, .text img, .text a[href^=\"javascript\"], "
                       ".text a[href^=\"data\"], .text [onerror]').length") == 0
    assert "<script>" in browser.run(f"{LAST}.innerText")


def check_outage(browser, server):
    set_length(browser, 40)
    server.terminate()
    server.wait()
    browser.key("n", 1, "KeyN")
    browser.type("Are you there?")
    browser.key("Enter")
    browser.wait(f"{IDLE} && document.getElementById('state').textContent !== ''")
    server = start_server()
    browser.wait("document.getElementById('state').textContent === ''")
    click(browser, LAST, "Regenerate")
    browser.wait(f"{IDLE} && {LAST}.innerText.includes('tokens/s')")
    return server


def check_runs(browser):
    """The link to the page of runs, which has the training of the small model, and back."""
    browser.wait("!document.getElementById('runs').hidden")
    browser.run("document.getElementById('runs').click()")
    browser.wait("document.querySelector('.run')?.innerText.includes('model')")
    browser.wait("document.querySelector('.chart path') !== null || document.querySelector('.chart circle') !== null")
    browser.run("document.getElementById('chat-link').click()")
    browser.wait("document.getElementById('model')?.value === 'small'")


def main():
    server = start_server()
    relay = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    relay.daemon_threads = True
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{relay.server_port}/"
    browser = Browser(FOLDER, PICTURES)
    try:
        browser.size(1280, 860)
        browser.send("Page.navigate", url=origin)
        browser.wait("document.getElementById('model')?.value === 'small'")
        for check in (check_rendering, check_hostile, check_conversation, check_history, check_runs):
            check(browser)
            print(f"page: {check.__name__} passes", flush=True)
        server = check_outage(browser, server)
        print("page: check_outage passes")
        outside = [url for url in browser.requests if not url.startswith((origin, "data:", "about:"))]
        assert not outside, outside
        assert not browser.problems, browser.problems
        print(f"page: {len(browser.requests)} requests, none to another origin")
    finally:
        browser.process.terminate()
        browser.process.wait()
        server.terminate()
        server.wait()


main()
