"""The messages and enums of a .proto file, with their comments.

Reads what policy files are made of: comments in lines of their own before a thing, or behind it in its line. What else
is met in one that is asked for is an error.
"""

import re

_FIELD = re.compile(r"(?P<label>repeated |optional )?(?P<type>[\w.]+) (?P<name>\w+) = \d+;(?:\s*//\s*(?P<after>.*))?")
_VALUE = re.compile(r"(?P<name>[A-Z_]+) = (?P<number>\d+);(?:\s*//\s*(?P<after>.*))?")


class Item:
    """A field or a value. `joined`: the comment of the one before is its own too, as of uid_range behind uid."""

    def __init__(self, name, kind, label, comment, joined):
        self.name, self.kind, self.label = name, kind, (label or "").strip()
        self.comment, self.joined = comment, joined


class Block:
    """A message or an enum: its comment, by lines, and its items."""

    def __init__(self, word, name, comment):
        self.word, self.name, self.comment, self.items = word, name, comment, []


def read(path, names):
    """Those blocks of the file that have one of these names, by name."""
    blocks, block, comment = {}, None, []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            end = line == "}\n"
            line = line.strip()
            start = re.fullmatch(r"(message|enum) (\w+) \{", line)
            if line.startswith("//"):
                comment.append(line[2:].removeprefix(" "))
            elif start and start[2] in names:
                block = blocks[start[2]] = Block(start[1], start[2], comment)
                comment = []
            elif end:
                block, comment = None, []
            elif not line:
                comment = []
            elif block is not None:
                match = (_FIELD if block.word == "message" else _VALUE).fullmatch(line)
                if not match:
                    raise ValueError("%s:%d: not understood: %s" % (path, number, line))
                parts = match.groupdict()
                text = " ".join(comment + ([parts["after"]] if parts["after"] else []))
                joined = not text and bool(block.items) and parts["name"].startswith(block.items[-1].name + "_")
                block.items.append(Item(parts["name"], parts.get("type"), parts.get("label"), text, joined))
                comment = []
            else:
                comment = []
    return blocks
