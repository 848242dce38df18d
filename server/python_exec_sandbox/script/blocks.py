"""Finds the comment blocks of inline script metadata, and what was meant to be one.

Follows the packaging specification "Inline script metadata" (PEP 723). Its regular expression takes time
that grows with the square of a hostile script's length, so the lines are walked once instead; a property
test holds both equal.
"""

import io
import re
import tokenize
from dataclasses import dataclass, field

TOKENIZED_CHARACTERS = 256 * 1024
"""How far a script is tokenised to tell comments from string literals; blocks stand at the top, and
the pure Python tokeniser of 3.11 takes about a second for this much."""

MAX_MISTAKES = 20
"""More than are shown. To say what is wrong with a block that isn't closed, the rest of the script is searched."""

_BLANK = "(?:[^\\S\\n]|[\u00ad\u200b-\u200d\u2060\ufeff])"
"""All that looks like a blank, or like nothing, in a text that was copied from a page."""

_CANDIDATE = re.compile(rf"^{_BLANK}*+#++{_BLANK}*+//[^\n]*", re.MULTILINE)
_OPENER = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_SCRIPT_OPENER = "# /// script"
_CLOSER = "# ///"
_NEAR_OPENER = re.compile(rf"{_BLANK}*+#++{_BLANK}*+/{{2,4}}{_BLANK}*+script{_BLANK}*+", re.IGNORECASE)
_BEFORE_KEY = re.compile(
    rf"{_BLANK}*+#++{_BLANK}*+/{{2,4}}+(?!/)[^\n]*\n{_BLANK}*+#++{_BLANK}*+(?:dependencies|requires-python){_BLANK}*+="
)
_SIGN = re.compile(rf"#{_BLANK}*+")
_NEAR_CLOSER = re.compile(rf"{_BLANK}*+#++{_BLANK}*+/{{2,4}}{_BLANK}*+")


@dataclass(frozen=True, slots=True)
class Block:
    """A well-formed block. ``line`` is its opener's; ``lines`` are its content without the comment signs,
    the first of which stands in line ``line + 1`` of the script."""

    type: str
    line: int
    lines: tuple[str, ...]

    def line_of_inner(self) -> int | None:
        """The script's line, if any, that was meant to open a block of its own but is content of this one."""
        meant = _SCRIPT_OPENER.removeprefix("# ")
        return self.line + 1 + self.lines.index(meant) if meant in self.lines else None


@dataclass(frozen=True, slots=True)
class Found:
    """All blocks of a script in order, and a sentence for each place where one was meant but not met."""

    blocks: list[Block] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)


def find_blocks(text: str) -> Found:
    """The blocks of ``text``, whose lines end in line feeds; nothing after the first ``MAX_MISTAKES``."""
    openers = _openers(text)
    if not openers:
        return Found()
    lines = text.split("\n")
    in_strings = _inside_strings(text, openers)
    found = Found()
    resume = 0
    for opener in openers:
        if opener >= resume and opener not in in_strings:
            resume = _read_block(lines, opener, found)
        if len(found.mistakes) >= MAX_MISTAKES:
            break
    return found


def _openers(text: str) -> list[int]:
    """The indexes of all lines that open a block, or look like it."""
    found = []
    line, counted = 0, 0
    for candidate in _CANDIDATE.finditer(text):
        meant = _NEAR_OPENER.fullmatch(candidate[0]) or _BEFORE_KEY.match(text, candidate.start())
        if meant or _OPENER.fullmatch(candidate[0]):
            line += text.count("\n", counted, candidate.start())
            counted = candidate.start()
            found.append(line)
    return found


def _read_block(lines: list[str], opener: int, found: Found) -> int:
    """Add the block that opens at index ``opener``, or what is wrong with it; returns where to go on."""
    exact = _OPENER.fullmatch(lines[opener])
    if exact is None or (exact[1] != "script" and exact[1].lower() == "script"):
        found.mistakes.append(
            f"Line {opener + 1} of the script looks like the start of a metadata block but is not one: "
            f"write it exactly as '# /// script', without other characters or blanks."
        )
        return opener + 1
    end = _end_of_comments(lines, opener + 1)
    closer = next((n for n in range(end - 1, opener, -1) if lines[n] == _CLOSER), None)
    if closer is not None:
        content = tuple(line[2:] for line in lines[opener + 1 : closer])
        found.blocks.append(Block(type=exact[1], line=opener + 1, lines=content))
        if exact[1] != "script" and (inner := found.blocks[-1].line_of_inner()):
            found.mistakes.append(
                f"The metadata block {exact[1][:40]!r} opened in line {opener + 1} of the script goes on over "
                f"line {inner}, '# /// script': put a line that is no comment before that line."
            )
        return closer + 1
    if exact[1] == "script":
        found.mistakes.append(_why_unclosed(lines, opener, end))
    return end


def _end_of_comments(lines: list[str], start: int) -> int:
    """The index after the last of the lines from ``start`` on that may be a block's content."""
    end = start
    while end < len(lines) and (lines[end] == "#" or lines[end].startswith("# ")):
        end += 1
    return end


def _why_unclosed(lines: list[str], opener: int, end: int) -> str:
    opened = f"The metadata block opened in line {opener + 1} of the script"
    for n in range(opener + 1, min(end + 1, len(lines))):
        if _NEAR_CLOSER.fullmatch(lines[n]):
            return f"{opened} is not closed by line {n + 1}: write that line exactly as '# ///'."
    breaker = lines[end] if end < len(lines) else None
    if breaker is not None and breaker.startswith("#"):
        return (
            f"{opened} is broken by line {end + 1}: after the '#' there must be a blank. "
            f"Write that line as '# {_SIGN.sub('', breaker, count=1)[:40]}'."
        )
    if breaker is not None and not breaker.strip() and _closes_later(lines, end):
        return f"{opened} is broken by the empty line {end + 1}: write '#' there, or remove the line."
    return f"{opened} is never closed: put a line '# ///' after its last line (line {end})."


def _closes_later(lines: list[str], start: int) -> bool:
    """Whether only blank lines and comments stand between ``start`` and a closing line."""
    for line in lines[start:]:
        if line == _CLOSER:
            return True
        if line.strip() and not line.startswith("#"):
            return False
    return False


def _inside_strings(text: str, candidates: list[int]) -> set[int]:
    """The indexes among ``candidates`` (ascending) of lines that lie inside a string literal.

    Where the text can't be tokenised (it may be in a newer Python's syntax) or is too long, the lines
    count as comments: better an error too many than a script without its dependencies.
    """
    comments: set[int] = set()
    reached = -1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text[:TOKENIZED_CHARACTERS]).readline):
            if token.start[0] - 1 > candidates[-1]:
                reached = candidates[-1]
                break
            reached = token.end[0] - 1
            if token.type == tokenize.COMMENT:
                comments.add(token.start[0] - 1)
    except (tokenize.TokenError, SyntaxError, RecursionError):
        pass  # what lies beyond ``reached`` stays undecided
    return {n for n in candidates if n <= reached and n not in comments}
