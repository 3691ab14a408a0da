"""A Chromium without a window, driven by its own protocol over two pipes: no port, no driver and no package is needed.

Only what test_site.py uses: a page is opened, keys are typed, expressions are evaluated, and the colour of a point is read.
"""

import base64
import itertools
import json
import os
import subprocess
import time
import zlib

SOON = 60  # seconds


class Refused(Exception):
    """The browser's answer, also to an expression whose page is being left."""


class Browser:
    """Ends with its `with` block."""

    def __init__(self, program, folder):
        """The browser keeps its files in `folder`."""
        its_input, our_output = os.pipe()
        our_input, its_output = os.pipe()
        self.ids = itertools.count(1)
        # Root may have no sandbox, and only pages of our own are read. The browser's pipes have the numbers 3 and 4.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" 3<&{its_input} 4>&{its_output}', program, "--headless", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}", "--remote-debugging-pipe"],
            pass_fds=(its_input, its_output), stderr=subprocess.DEVNULL,
        )
        os.close(its_input)
        os.close(its_output)
        self.requests = os.fdopen(our_output, "wb", buffering=0)
        self.replies = os.fdopen(our_input, "rb")
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.requests.close()
        self.replies.close()

    def call(self, method, **parameters):
        """Sends a request and returns its result. Events of the browser are left out."""
        request = {"id": next(self.ids), "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.requests.write(json.dumps(request).encode() + b"\0")
        while True:
            reply = json.loads(self._message())
            if reply.get("id") == request["id"]:
                if "error" in reply:
                    raise Refused(f"{method}: {reply['error']}")
                return reply["result"]

    def _message(self):
        message = bytearray()
        while (byte := self.replies.read(1)) != b"\0":
            assert byte, "the browser ended"
            message += byte
        return bytes(message)

    def value(self, expression):
        """What the expression is in the page; None for what has no JSON."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def until(self, expression, what=None):
        """Waits until the expression is true, and returns its value."""
        until = time.monotonic() + SOON
        while time.monotonic() < until:
            try:
                if value := self.value(expression):
                    return value
            except Refused:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not within {SOON} s: {what or expression}, at {self.value('location.href')}")

    def open(self, url):
        # A page that differs in its anchor only would not be loaded again.
        self.call("Page.navigate", url="about:blank")
        self.until("location.href == 'about:blank'")
        self.call("Page.navigate", url=url)
        self.until("location.href != 'about:blank' && document.readyState == 'complete'", url)

    def type(self, text):
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", key=letter, text=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press_enter(self):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")

    def prefer(self, scheme):
        """`dark` or `light`, as the reader's system prefers."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def colour(self, x, y):
        """Red, green and blue of a point of the page."""
        clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return pixel(base64.b64decode(shot["data"]))


def pixel(png):
    """The colour of a PNG file that has one point. A filter changes nothing of the first point."""
    at, data = 8, b""
    while at < len(png):
        length = int.from_bytes(png[at:at + 4], "big")
        if png[at + 4:at + 8] == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += 12 + length
    return tuple(zlib.decompress(data)[1:4])
