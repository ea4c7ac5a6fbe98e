"""The parts of the manual pages that are made: of --help, and of the comments of the policy's .proto file."""

import re

import roff


def _of(entries):
    return ", ".join(roff.bold(entry) for entry in entries)


def entry(item):
    """An option or a positional."""
    tag = ", ".join(roff.bold(name) for name in item.names)
    if not item.names[0].startswith("-"):
        tag = roff.italic(item.names[0])
    if item.value:
        if "|" in item.value:
            tag += " " + "|".join(roff.bold(word) for word in item.value.split("|"))
        else:
            tag += " " + roff.italic(item.value)
    body = roff.words(roff.sentence(item.about))
    if item.default:
        body += "\nDefault: " + roff.bold(item.default) + "."
    if item.required and item.names[0].startswith("-"):
        body += "\nMust be given."
    if item.needs:
        body += "\nOnly with " + _of(item.needs) + "."
    if item.excludes:
        body += "\nNot with " + _of(item.excludes) + "."
    return roff.tagged(tag, body)


def options(command):
    return "".join(entry(option) for option in command.options)


def synopsis(command):
    """The usage of a program or command, a line."""
    parts = []
    for word in command.usage.split():
        name = word.strip("[].")
        parts.append(roff.escape(word).replace(name, "\\fI%s\\fR" % name) if name.isupper() else roff.bold(word))
    return " ".join(parts) + "\n"


def commands(program, note=""):
    """All commands with their options but --help, each in a section of its own; `note` is said of each of them too."""
    text = ""
    for command in program.commands:
        text += ".SS %s\n" % roff.escape(" ".join(command.path))
        text += synopsis(command) + ".PP\n" + roff.words(roff.sentence(command.about + note)) + "\n"
        text += "".join(map(entry, command.positionals))
        text += "".join(entry(option) for option in command.options if "--help" not in option.names)
        text += commands(command, " (admin)" if command.about.endswith("(admin)") else "")
    return text


def _parts_of_footer(program):
    before, _, status = program.footer.partition("Exit status: ")
    if not status:
        raise ValueError("no exit status in --help")
    return before, status


def footer(program):
    """What --help says after the options, but for the exit status."""
    paragraphs = re.split(r"\n\s*\n", _parts_of_footer(program)[0].strip())
    return ".PP\n".join(roff.words(paragraph) + "\n" for paragraph in paragraphs)


def exit_status(program):
    text = " ".join(_parts_of_footer(program)[1].split()).rstrip(".")
    parts = re.findall(r"(\d) (.*?)(?=; \d |$)", text)
    return "".join(roff.tagged(roff.bold(code), roff.words(roff.sentence(what[:1].upper() + what[1:]))) for code, what in parts)


def comment(lines):
    """A comment of several paragraphs; lines that are set in further are an example."""
    text, plain, shown = "", [], []

    def flush():
        nonlocal text, plain, shown
        if shown:
            text += roff.example(shown)
        elif plain:
            text += roff.words(" ".join(plain)) + "\n"
        plain, shown = [], []

    for line in [*lines, ""]:
        if line.startswith("  "):
            if plain:
                flush()
            shown.append(line[2:])
        elif not line:
            was_plain = bool(plain)
            flush()
            text += ".PP\n" if was_plain else ""
        else:
            if shown:
                flush()
            plain.append(line)
    return text.removesuffix(".PP\n")


_KINDS = {
    "string": '"TEXT"',
    "uint32": "NUMBER",
    "uint64": "NUMBER",
    "bool": "true|false",
    "google.protobuf.Duration": "{ seconds: NUMBER }",
    "AccessFlag": "FLAG",
}


def _tag(item):
    scalar = item.kind in _KINDS
    tag = roff.bold(item.name + (":" if scalar else "")) + " "
    tag += roff.escape(_KINDS[item.kind]) if scalar else "{ %s }" % roff.italic(item.kind)
    return tag + (" (may be repeated)" if item.label == "repeated" else "")


def fields(block):
    """The fields of a message, as the text format has them; those that share a comment share a paragraph."""
    text = ""
    for at, item in enumerate(block.items):
        if item.joined:
            continue
        tag = _tag(item)
        for other in block.items[at + 1:]:
            if not other.joined:
                break
            tag += "\n.TQ\n" + _tag(other)
        text += roff.tagged(tag, roff.words(item.comment) or "\\&")
    return text


def values(block):
    """The values of an enum but the unspecified one."""
    return "".join(
        roff.tagged(roff.bold(item.name), roff.words(item.comment) or "\\&")
        for item in block.items
        if not item.name.endswith("_UNSPECIFIED"))
