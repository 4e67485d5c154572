"""What an .api file says, as plain data. No rules here: reader.py reads, check.py judges."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from family import CUDA, Family


class ApiError(Exception):
    """A mistake in a description, told as FILE:LINE: what is wrong, what was expected."""

    def __init__(self, where, message):
        super().__init__(f"{where}: {message}")


@dataclass(frozen=True)
class Where:
    """A place in a description; `file` is relative to the folder that holds api/."""

    file: str
    line: int

    def __str__(self):
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class CType:
    """A C type as declarations here need it: one base, optionally const, with stars."""

    base: str
    const: bool = False
    stars: int = 0

    def __str__(self):
        return ("const " if self.const else "") + self.base + "*" * self.stars

    def pointee(self):
        return CType(self.base, self.const, self.stars - 1)


@dataclass
class Constant:
    name: str
    value: str
    where: Where


@dataclass
class Alias:
    """Another name of a type; `address` marks addresses in device memory."""

    name: str
    target: CType
    address: bool
    where: Where


@dataclass
class Handle:
    """An opaque object: `typedef struct tag* name`."""

    name: str
    tag: str
    where: Where


@dataclass
class Enum:
    name: str
    tag: Optional[str]
    values: Dict[str, str]  # Name to value, spelled as in the description.
    where: Where


@dataclass
class Field:
    """A member of a struct; `type` is a CType, or a Struct without a name."""

    name: Optional[str]
    type: object
    dimensions: List[int]
    where: Where


@dataclass
class Struct:
    kind: str  # "struct" or "union"
    name: Optional[str]
    tag: Optional[str]
    align: int
    fields: List[Field]
    where: Where


@dataclass
class Callback:
    name: str
    result: CType
    params: list
    where: Where


@dataclass
class Param:
    """One parameter of a call; `role` is value, plain, out, in, string, new or drop.

    `plain` is a pointer without an annotation: only a hook knows what it means.
    """

    name: str
    type: CType
    role: str
    optional: bool
    count: Optional[str]  # Of an array: a number or the name of another parameter.
    limit: Optional[int]  # Of an array: the most elements that one command carries.
    where: Where


@dataclass
class Call:
    """One exported function."""

    cls: str  # sync, post, cached, local or refused
    reason: Optional[str]  # Of a refused call.
    name: str
    params: List[Param]
    attrs: Dict[str, object]
    subject: str
    where: Where
    op: Optional[int] = None

    def has(self, attribute):
        return attribute in self.attrs

    @property
    def bare(self):
        """Whether only the name is described: nothing is done with the parameters."""
        return self.has("bare")

    @property
    def by_hand(self):
        """Whether the export itself is written by hand."""
        return self.bare and self.cls == "local" and not self.has("answer")

    @property
    def hook(self):
        return self.attrs.get("hook", "")

    @property
    def client_hook(self):
        if self.has("same") or self.has("answer") or self.bare:
            return False
        return self.cls == "local" or self.has("via") or self.hook in ("client", "both")

    @property
    def server_hook(self):
        return self.hook in ("server", "both")

    @property
    def on_wire(self):
        """Whether the call has a command of its own, made from its prototype."""
        return self.cls in ("sync", "post", "cached") and not self.has("via")

    @property
    def waits(self):
        return self.cls in ("sync", "cached")

    @property
    def variants(self):
        """The suffixes under which the call is exported besides its own name."""
        return [suffix for suffix in ("ptsz", "ptds") if suffix in self.attrs]

    @property
    def exports(self):
        return [self.name] + [f"{self.name}_{suffix}" for suffix in self.variants]


@dataclass
class WireField:
    """One value of a command: a fixed type, or string, bytes, list with a limit."""

    name: str
    kind: str  # scalar, optional, string, bytes or list
    type: Optional[CType]  # Of scalar, optional and list.
    limit: Optional[int]
    where: Where


@dataclass
class Command:
    """What travels: made from a call on the wire, or declared with `command`."""

    name: str  # As written: cuEventRecord or launch_kernel.
    struct: str  # EventRecord or LaunchKernel
    handler: str  # event_record or launch_kernel
    waits: bool
    slow: bool
    later: bool
    fields: List[WireField]
    reply: List[WireField]
    subject: str
    where: Where
    call: Optional[Call] = None
    op: Optional[int] = None

    @property
    def server_hook(self):
        return self.call is None or self.call.server_hook


@dataclass
class Api:
    """Everything that was described of one family, and what shares its command numbers."""

    family: Family = CUDA
    subjects: List[str] = field(default_factory=list)
    files: Dict[str, str] = field(default_factory=dict)
    constants: Dict[str, Constant] = field(default_factory=dict)
    types: Dict[str, object] = field(default_factory=dict)
    calls: List[Call] = field(default_factory=list)
    commands: List[Command] = field(default_factory=list)
    others: List["Api"] = field(default_factory=list)

    @property
    def together(self):
        """This description and those that share its command numbers."""
        return [self] + self.others

    def calls_of(self, subject):
        return [call for call in self.calls if call.subject == subject]

    def commands_of(self, subject):
        return [command for command in self.commands if command.subject == subject]
