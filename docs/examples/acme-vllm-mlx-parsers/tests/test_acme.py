from acme_vllm_mlx_parsers import AcmeToolParser

from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.parsers import ToolSample


class TestAcme(ToolParserSuite):
    parser, extra_markers, bare, whole_calls = AcmeToolParser, ("CALL ",), True, True
    samples = (ToolSample('Hi\nCALL f {"a": 1}', "Hi\n", [("f", {"a": 1})]), ToolSample("CALL", "CALL"))
