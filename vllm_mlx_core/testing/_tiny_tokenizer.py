"""The tiny models' tokenizer: byte-level BPE with almost no merges, and a ChatML template with tools and thinking.

Every text survives a round trip and nearly every byte is one token, so random output is often cut inside a character:
just what a detokenizer should be tested with.
"""

from __future__ import annotations

from typing import Any

_MERGES = (("y", "e"), ("ye", "s"), ("n", "o"))
_CONTROL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", "<|pad|>", "<s>", "</s>",
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<image>",
    "<start_of_image>", "<end_of_image>", "<image_soft_token>", "<audio>", "<mask>", "<cls>", "<sep>",
    "<row_1_col_1>", "<fake_token_around_image>", "<global-img>", "<reserved_0>",
)  # fmt: skip
_VISIBLE = {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}
_FIRST_CONTROL_ID = 256 + len(_MERGES)

TOKEN_IDS = {token: _FIRST_CONTROL_ID + index for index, token in enumerate(_CONTROL_TOKENS)}
VOCAB_SIZE = _FIRST_CONTROL_ID + len(_CONTROL_TOKENS)  # 288

CHAT_TEMPLATE = """\
{%- macro text(content) %}
{%- if content is string %}{{- content }}
{%- elif content %}
{%- for part in content if part.type == 'text' %}{{- part.text }}{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- text(messages[0].content) + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\nYou may call these functions:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\n\\nFor each call return one JSON object:\\n<tool_call>\\n' }}
{{- '{"name": <name>, "arguments": <arguments>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + text(messages[0].content) + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'system' and loop.first %}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + text(message.content) + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + text(message.content) }}
{%- for call in message.tool_calls or [] %}
{%- set f = call.function if call.function is defined else call %}
{{- '\\n<tool_call>\\n{"name": "' + f.name + '", "arguments": ' }}
{{- f.arguments if f.arguments is string else (f.arguments | tojson) }}{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""


def _byte_alphabet() -> list[str]:
    """Return the character that stands for each byte in a byte-level vocabulary, by byte value."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    stand_ins = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(stand_ins)) for byte in range(256)]


def tokenizer_files() -> dict[str, Any]:
    """Return the tokenizer's files by name: JSON values, and text for the template."""
    words = [*_byte_alphabet(), *(left + right for left, right in _MERGES)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": token not in _VISIBLE,
            }
            for token, token_id in TOKEN_IDS.items()
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: index for index, word in enumerate(words)} | TOKEN_IDS,
            "merges": [list(pair) for pair in _MERGES],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",
        "unk_token": "<unk>",
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config, "chat_template.jinja": CHAT_TEMPLATE}
