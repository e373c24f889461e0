"""Says which links of the site in a folder lead nowhere: `links.py FOLDER`.

A link that is no address on the network leads to a file of the site, and what follows "#" is an id there.
"""

import html.parser
import pathlib
import posixpath
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src"):
                self.links.add(value)


def wrong(pages, files, page, link):
    """What is wrong with a link of a page, or None."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = page
    if parts.path:
        path = posixpath.join(posixpath.dirname(page), urllib.parse.unquote(parts.path))
        path += "index.html" if path.endswith("/") else ""
        # "/" is the site's own folder, and ".." does not lead out of it.
        path = posixpath.normpath(path.removeprefix("/"))
    if path not in files:
        return f"there is no {path}"
    part = urllib.parse.unquote(parts.fragment)
    if part and (path not in pages or part not in pages[path].ids):
        return f"{path} has no id {part}"
    return None


def main(folder):
    paths = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    pages = {name: Page(path.read_text()) for name, path in files.items() if name.endswith(".html")}
    links = [(page, link) for page in sorted(pages) for link in sorted(pages[page].links)]
    found = [(page, link, wrong(pages, files, page, link)) for page, link in links]
    found = [f"{page}: ({link}): {why}" for page, link, why in found if why]
    print("".join(line + "\n" for line in found), end="", file=sys.stderr)
    print(f"book: {len(pages)} pages, {len(links)} links, {len(found)} lead nowhere", file=sys.stderr)
    return 1 if found or not links else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
