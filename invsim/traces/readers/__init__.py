"""The readers that ship; importing this makes their formats known."""

from invsim.traces.native import NATIVE
from invsim.traces.reader import register_reader
from invsim.traces.readers.chat import ChatReader
from invsim.traces.readers.claude_code import ClaudeCodeReader
from invsim.traces.readers.inspect_log import InspectReader
from invsim.traces.readers.otlp import OtlpReader
from invsim.traces.readers.tau2 import Tau2Reader

# In the order in which a file is tried on them: the more a format says of itself, the earlier.
for _reader in (NATIVE, InspectReader(), OtlpReader(), Tau2Reader(), ClaudeCodeReader(), ChatReader()):
    register_reader(_reader)

__all__ = ["ChatReader", "ClaudeCodeReader", "InspectReader", "OtlpReader", "Tau2Reader"]
