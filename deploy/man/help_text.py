"""What a program says with --help (CLI11's form, as daemon/usage.cc sets it) as a tree.

Whatever is not understood is an error: a page never leaves out what --help tells.
"""

import re
import subprocess

COLUMN = 27  # Where descriptions begin.

_TAG = re.compile(
    r"(?P<names>\S+)"
    r"(?: (?!REQUIRED|Needs:|Excludes:|\.\.\.)(?P<value>[^= ]+)(?:=(?P<default>\S+))?)?"
    r"(?P<several> \.\.\.)?"
    r"(?P<required> REQUIRED)?"
    r"(?: Needs: (?P<needs>--\S+(?: --\S+)*))?"
    r"(?: Excludes: (?P<excludes>--\S+(?: --\S+)*))?"
)


class Entry:
    """An option or a positional; `about` is its description."""

    def __init__(self, tag, about):
        match = _TAG.fullmatch(tag)
        if not match:
            raise ValueError("not understood in --help: %r" % tag)
        self.names = match["names"].split(",")
        self.value = match["value"]
        self.default = match["default"]
        self.several = bool(match["several"])
        self.required = bool(match["required"])
        self.needs = (match["needs"] or "").split()
        self.excludes = (match["excludes"] or "").split()
        self.about = about


class Command:
    """A program, or a command of one, with all below it."""

    def __init__(self, program, path=()):
        text = subprocess.run(
            [program, *path, "--help"], check=True, stdout=subprocess.PIPE, encoding="utf-8"
        ).stdout
        self.path = path
        head, usage, rest = re.fullmatch(r"(.*?)\nUsage: ([^\n]*)\n(.*)", text, re.S).groups()
        self.about = " ".join(head.split())
        self.usage = usage
        sections, self.footer = _split(rest)
        self.positionals = [Entry(*row) for row in sections.pop("Positionals", [])]
        self.options = [Entry(*row) for row in sections.pop("Options", [])]
        names = [tag for tag, _ in sections.pop("Subcommands", [])]
        if sections:
            raise ValueError("not understood in --help: %s" % ", ".join(sections))
        self.commands = [Command(program, (*path, name)) for name in names]


def _split(text):
    """The sections of the text below `Usage:`, each a list of (tag, description), and what follows them."""
    sections, section, footer = {}, None, []
    for line in text.split("\n"):
        if footer:
            footer.append(line)
        elif re.fullmatch(r"[A-Z][a-z]+:", line):
            section = sections.setdefault(line[:-1], [])
        elif not line.strip():
            section = None
        elif section is None:
            footer.append(line)
        elif line.startswith(" " * COLUMN):
            if not section:
                raise ValueError("not understood in --help: %r" % line)
            section[-1][1].append(line.strip())
        elif line.startswith("  ") and line[2] != " ":
            tag, about = line.strip(), []
            if len(line) > COLUMN and line[COLUMN - 1] == " " and line[COLUMN] != " ":
                tag, about = line[:COLUMN].strip(), [line[COLUMN:].strip()]
            section.append((tag, about))
        else:
            raise ValueError("not understood in --help: %r" % line)
    rows = {name: [(tag, " ".join(about)) for tag, about in found] for name, found in sections.items()}
    return rows, "\n".join(footer).strip()
