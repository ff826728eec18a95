"""A headless Chromium, spoken to over pipes (the DevTools protocol), for `make report-check`.

One browser, one page at a time. It has no network: names lead nowhere, and what it asks for is
noted.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile

NAMES = ["chromium", "chromium-browser", "google-chrome"]
# The time in seconds that an answer may take.
PATIENCE = 60


def find():
    """Returns the path of a browser, if one is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser that runs until `close`."""

    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="report-check-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        places = f"exec {path} \"$@\" 3<&{to_read} 4>&{to_write}"
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--no-first-run", "--disable-component-update", "--disable-background-networking",
            "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={self.profile}", "about:blank",
        ]
        self.process = subprocess.Popen(
            ["sh", "-c", places, "sh", *options], pass_fds=[to_read, to_write],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        os.set_blocking(self.back, False)
        self.pending, self.number, self.session = b"", 0, None
        self.events = []
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.send(
            "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Network", "Runtime", "Log"]:
            self.send(f"{domain}.enable")

    def receive(self):
        """Returns the next message."""
        while b"\0" not in self.pending:
            if not select.select([self.back], [], [], PATIENCE)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise ConnectionError("the browser has ended")
            self.pending += piece
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, **params):
        """Has the browser do something, and returns its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, height, scheme):
        """Opens a file in a window of this width, light or dark. Returns what was fetched besides
        it, and what the console says."""
        self.events.clear()
        self.send("Emulation.setDeviceMetricsOverride",
                  width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        url = "file://" + os.path.abspath(path)
        self.send("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        requests = [event["params"]["request"]["url"] for event in self.events
                    if event["method"] == "Network.requestWillBeSent"]
        said = [json.dumps(event["params"]) for event in self.events
                if event["method"] in
                ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")]
        return [request for request in requests if request != url], said

    def evaluate(self, script):
        """Returns the value of a script in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self, path, height=None):
        """Writes a picture of the page, from its top, as high as the page or as `height`."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"],
                "scale": 1}
        data = self.send("Page.captureScreenshot", format="png", clip=clip,
                         captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def printed(self, path):
        """Writes the page as it is printed on A4."""
        data = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69,
                         printBackground=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        """Ends the browser."""
        self.session = None
        try:
            self.send("Browser.close")
            self.process.wait(PATIENCE)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)
