"""Text as roff's man macros have it."""

import re


def escape(text):
    """Text that roff shows as it is: a dash is a dash that can be copied, and no line is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def bold(text):
    return "\\fB" + escape(text) + "\\fR"


def italic(text):
    return "\\fI" + escape(text) + "\\fR"


def sentence(text):
    """With a full stop: it is one among others."""
    text = text.strip()
    return text if text.endswith((".", "?", "!")) else text + "."


def words(text):
    """Running text: lines and blanks as one blank, and what stands in `these` in bold."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        raise ValueError("a ` without its other: %r" % text)
    return "".join(bold(part) if at % 2 else escape(part) for at, part in enumerate(parts))


def tagged(tag, body):
    """A paragraph with a hanging tag; both are roff."""
    return ".TP\n%s\n%s\n" % (tag, body)


def example(lines):
    """Lines as they are, in an indented block."""
    return ".PP\n.RS 4\n.EX\n%s\n.EE\n.RE\n.PP\n" % "\n".join(escape(line) for line in lines)
