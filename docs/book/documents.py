"""Takes what the book links to into the book: documents of the repository, and what these link to. mdBook runs this (book.toml).

In the site a document has the path that it has in the repository. A file that is no document is shown as it is, and a picture is
put into the page that shows it. The sources do not change: their links are right where the repository is read.
"""

import base64
import json
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = "docs/book/src/"
LINK = re.compile(r"(!?\[[^\[\]]*\]\()([^)\s#]+)")


class Book:
    def __init__(self):
        # What is taken in: the text of each file, as Markdown.
        self.documents = {}

    def place(self, path):
        """Where a file is in the site, by the name that mdBook makes a page's name of."""
        if path == PAGES + "SUMMARY.md":
            return "index.md"
        if path.startswith(PAGES):
            return path.removeprefix(PAGES)
        return path if path.endswith(".md") else path + ".md"

    def convert(self, path, text):
        """The text of a file, with links that are right in the site. What they lead to is taken in."""

        def converted(link):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
            file = ROOT / target
            if not file.is_file() or (target.startswith(PAGES) and file.suffix != ".md"):
                return link[0]
            if file.suffix == ".svg":
                return f"{link[1]}data:image/svg+xml;base64,{base64.b64encode(file.read_bytes()).decode()}"
            self.take(target)
            return link[1] + posixpath.relpath(self.place(target), posixpath.dirname(self.place(path)) or ".")

        return LINK.sub(converted, text)

    def convert_pages(self, items):
        """The same for all pages of the book."""
        for item in items:
            if "Chapter" in item:
                page = item["Chapter"]
                page["content"] = self.convert(PAGES + page["path"], page["content"])
                self.convert_pages(page["sub_items"])

    def take(self, path):
        if path in self.documents or path.startswith(PAGES):
            return
        text = (ROOT / path).read_text()
        # It is there before its links are followed, because they may lead back.
        self.documents[path] = f"# {path}\n\n~~~~~~text\n{text}\n~~~~~~\n"
        if path.endswith(".md"):
            self.documents[path] = self.convert(path, text)

    def chapters(self):
        """What was taken in. What is in a folder is below its README."""
        chapters = {path: self.chapter(path) for path in sorted(self.documents)}
        top = []
        for path, chapter in chapters.items():
            readmes = [(folder / "README.md").as_posix() for folder in pathlib.PurePath(path).parents]
            above = [chapters[readme]["sub_items"] for readme in readmes if readme in chapters and readme != path]
            (above + [top])[0].append({"Chapter": chapter})
        return top

    def chapter(self, path):
        text = self.documents[path]
        return {
            "name": re.search(r"^# (.*)", text, re.MULTILINE)[1].replace("`", ""),
            "content": text,
            "number": None,
            "sub_items": [],
            "path": self.place(path),
            "source_path": None,
            "parent_names": [],
        }


def main():
    _, given = json.load(sys.stdin)
    items = given["items" if "items" in given else "sections"]
    book = Book()
    book.convert_pages(items)
    items += [{"PartTitle": "Documents of the repository"}, *book.chapters()]
    json.dump(given, sys.stdout)


if __name__ == "__main__" and sys.argv[1:2] != ["supports"]:
    main()
